"""``python -m aten_overrides``."""

import sys

from aten_overrides.cli import main

sys.exit(main())
