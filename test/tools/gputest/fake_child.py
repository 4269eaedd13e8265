"""A job's child that does what its options say, without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def point(ms: float, **more: Any) -> dict[str, Any]:
    row = {"op": "solve_ex", "dtype": "float32", "m": 8, "n": 8, "batch": 1, "nrhs": 1}
    return row | {"backend": "choice", "ms": ms, "spread": [ms, ms]} | more


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    options = job["options"]
    with Path(sys.argv[2]).open("a", encoding="utf-8") as out:
        for ms in options.get("points", [1.0]):
            out.write(json.dumps(point(ms, seen=sorted(job["paths"]))) + "\n")
        out.write(json.dumps({"extra": "not for the record"}) + "\n")
        out.flush()
        match options.get("then"):
            case "crash":
                out.write('{"op": "cut off in the mid')
                out.flush()
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang" | "leave":
                other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
                Path(options["pid_file"]).write_text(str(other.pid))
                if options["then"] == "hang":
                    time.sleep(60)
            case "raise":
                raise RuntimeError("the device is on fire")
            case "meet":  # ends only if the other one runs at the same time
                Path(options["mine"]).touch()
                while not Path(options["other"]).exists():
                    time.sleep(0.02)
                out.write(json.dumps(point(2.0, environment=dict(os.environ))) + "\n")
            case "environment":
                out.write(json.dumps(point(2.0, environment=dict(os.environ))) + "\n")
        out.write(json.dumps({"end": True}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
