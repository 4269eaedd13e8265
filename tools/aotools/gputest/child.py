"""The child process of a job: `python -m aotools.gputest.child JOB.json ROWS.jsonl`."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

from aotools.env import ROOT
from aotools.gputest.session import Rows, Session

NO_GPU = 9  # exit code


def main() -> int:
    """Runs the job described in the file argv[1], appends its rows to argv[2]; the last row is
    {"end": ...}.
    """
    started = time.monotonic()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    module, _, function = job["function"].partition(":")
    if job["folder"]:
        sys.path.insert(0, str(ROOT / job["folder"]))
    else:
        module = f"aotools.gputest.{module}"
    run = getattr(importlib.import_module(module), function)
    with Path(sys.argv[2]).open("a", encoding="utf-8") as out:
        rows = Rows(out)
        paths = {name: Path(path) for name, path in job["paths"].items()}
        session = Session(rows, job["library"], paths, job["options"], job["timeout"])
        if not session.torch.cuda.is_available() or session.torch.version.cuda is None:
            print(f"torch {session.torch.__version__} sees no NVIDIA GPU", file=sys.stderr)
            return NO_GPU
        session.torch.manual_seed(20)
        run(session)
        rows.write({"end": True, "seconds": round(time.monotonic() - started, 1)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
