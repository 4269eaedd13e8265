"""The tools."""

import sys as _sys
from pathlib import Path as _Path

# The tools use the package beside them, from whatever folder and Python they are started.
_ROOT = str(_Path(__file__).resolve().parents[2])
if _ROOT not in _sys.path:
    _sys.path.append(_ROOT)
