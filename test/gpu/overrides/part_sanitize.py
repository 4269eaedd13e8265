"""compute-sanitizer's memcheck and racecheck on a reduced set of calls."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import common

from aotools.gputest.session import Session

TOOLS = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
REPORTED = 86  # exit code when the tool has something to report
OURS = "batched_native"  # the namespace of our kernels; all others are torch's or the vendors'

# argv: seconds, and a JSON list of [route, dtype, batch, m, n, right-hand sides]. Prints how many
# were done before time was up.
SCRIPT = """
import json, sys, time, torch, common
deadline = time.monotonic() + float(sys.argv[1])
cases = json.loads(sys.argv[2])
library = common.enable()
known = set(library.routes())
done = 0
for route, dtype, batch, m, n, sides in cases:
    if time.monotonic() > deadline:
        break
    if route not in known | {"choice"}:
        continue
    # From the host: the tool would instrument torch's kernels for random numbers as well.
    a = torch.randn(batch, m, n, dtype=getattr(torch, dtype)).cuda()
    with common.forced(library, route):
        lu, pivots, info = torch.linalg.lu_factor_ex(a)
        if m == n and route != common.NATIVE:
            b = torch.randn(batch, n, sides, dtype=getattr(torch, dtype)).cuda()
            for solve in ("batched_cublas", "triangular_cublas"):
                with common.forced(library, solve, "lu_solve"):
                    torch.linalg.lu_solve(lu, pivots, b)
            torch.linalg.inv_ex(a)
    torch.cuda.synchronize()
    done += 1
print("DONE", done, "OF", len(cases), flush=True)
"""


def cases(reduced: bool) -> list[tuple[Any, ...]]:
    """Our kernels first, since time may run out: by size, in all types. Then sizes that are no
    multiples of a tile (upstream 26996), by route and dtype.
    """
    few = [1, 2, 3, 5, 16, 17, 31, 32, 33]
    rest = [n for n in range(1, 34) if n not in few]
    made: list[tuple[Any, ...]] = [
        (common.NATIVE, dtype, 3, n, n, 2) for n in few for dtype in ("float32", "complex128")
    ]
    # racecheck does not follow barriers of some warps, which panels of more rows have: these are
    # checked as a build of their own (csrc/linalg/native/NOTES.md).
    made += [
        (common.NATIVE, "float32", 3, n, n, 1) for n in ([65, 90] if reduced else [65, 130, 257])
    ]
    for sizes in [few] if reduced else [few, rest]:
        for route in (common.NATIVE, "choice", "batched_cublas", "streamed_cusolver"):
            for dtype in ("float32", "complex128"):
                if route != common.NATIVE or sizes is rest:
                    made += [(route, dtype, 3, n, n, 2) for n in sizes]
    made += [("streamed_cusolver", "float32", 4, 513, 513, 1), ("choice", "float64", 3, 40, 17, 0)]
    return made


def tool() -> str | None:
    """The tool's path, None where it is not installed."""
    return next((found for name in TOOLS if (found := shutil.which(name))), None)


def reports(text: str) -> Counter[str]:
    """Reported kernels in the tool's log, with how often; "" where no kernel is named."""
    found: Counter[str] = Counter()
    waiting = False
    for line in text.splitlines():
        body = re.sub(r"^=+\s*", "", line)
        if re.match(r"(Invalid|Misaligned|Race reported|Error: Race|Warning: Race|Error: )", body):
            if waiting:
                found[""] += 1
            waiting = True
        elif waiting and (match := re.match(r"(?:and )?\s*(?:at|in)\s+(.+)", body)):
            name = re.sub(r"\+0x[0-9a-f]+.*|\s+in\s+\S+:\d+.*", "", match[1])
            found[name.strip()[:120]] += 1
            waiting = False
        if match := re.search(r"Race reported between .*? at (.+?)\+0x", body):
            found[match[1].strip()[:120]] += 1
            waiting = False
    if waiting:
        found[""] += 1
    return found


def judge(session: Session, which: str, bad: str, out: str, log: str) -> None:
    """The row of one tool's run."""
    with session.check(f"compute-sanitizer {which}", case="B17 B20") as check:
        done = re.search(r"DONE (\d+) OF (\d+)", out)
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", log)
        kernels = reports(log)
        ours = {name: count for name, count in kernels.items() if OURS in name}
        check.value = {
            "cases": f"{done[1]} of {done[2]}" if done else "0",
            "summary": summary[-1] if summary else "",
            "kernels": dict(kernels.most_common(8)),
        }
        clean = bool(done) and int(done[1] if done else 0) > 0 and bool(summary) and not bad
        check.ok = clean and not kernels
        # Reports in kernels that are not ours are the vendors' and are kept as such.
        check.vendor = bool(done) and bool(kernels) and not ours and "" not in kernels
        check.reason = f"{bad}: {(log or out).strip()[-300:]}" if bad else ""
        unsupported = re.search(
            r"Device not supported|not supported on this|LibraryNotLoaded", log + out
        )
        check.skip = unsupported is not None
        if unsupported:
            check.reason = f"the tool does not work on this machine: {unsupported[0]}"


def _run(session: Session, which: str, options: list[str], reduced: bool) -> None:
    path = tool()
    if path is None:
        with session.check(f"compute-sanitizer {which}", case="B17 B20") as check:
            check.skip, check.reason = True, "compute-sanitizer is not installed"
        return
    seconds = max(20.0, session.timeout - 60)
    with tempfile.TemporaryDirectory(prefix="sanitizer-") as name:
        log = Path(name) / "log"
        command = [path, "--tool", which, "--error-exitcode", str(REPORTED)]
        command += ["--log-file", str(log), "--print-limit", "200", *options]
        bad, out = common.script(
            SCRIPT,
            str(seconds * 0.6),
            json.dumps(cases(reduced)),
            timeout=seconds,
            before=command,
            PYTORCH_NO_CUDA_MEMORY_CACHING="1",
        )
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    bad = "" if bad == f"exit code {REPORTED}" else bad
    judge(session, which, bad, out, text)


def memcheck(session: Session) -> None:
    """Accesses out of bounds, with every tensor an allocation of its own."""
    _run(session, "memcheck", ["--report-api-errors", "no"], reduced=False)


def racecheck(session: Session) -> None:
    """Hazards on shared memory."""
    _run(session, "racecheck", ["--racecheck-report", "analysis"], reduced=True)
