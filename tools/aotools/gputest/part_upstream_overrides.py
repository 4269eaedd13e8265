"""Upstream's test_linalg.py of 2.6.0 with the stock wheel and with the overrides enabled, compared
test by test.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aotools.gputest import compare
from aotools.gputest.part_upstream import (
    LEFT_OUT,
    RETRY_SECONDS,
    Shard,
    for_later_torch,
    merge,
    report_ran,
    run_again,
    run_shards,
)
from aotools.gputest.session import Session

STOCK, OVERRIDES = "stock", "overrides"


def config(
    session: Session, library: str, shard: int, shards: int, only: Sequence[str] = ()
) -> dict[str, Any]:
    """The plugin's settings for a process. A shard of the session is a part of the tests, and each
    of its processes a part of that.
    """
    part, parts = session.options["part"], session.options["parts"]
    return {
        "torch": True,
        "library": "",
        "overrides": library == OVERRIDES,
        "preference": False,
        "others": session.options["others"],
        "shard": part * shards + shard,
        "shards": parts * shards,
        "only": list(only),
        "left_out": list(LEFT_OUT),
        "first": [],
    }


def run(session: Session) -> None:
    """Runs both side by side in `shards` processes each; suspects run again."""
    deadline = time.monotonic() + session.timeout - RETRY_SECONDS - 20
    source, device = Path(session.options["tests"]), session.options["device"]
    with tempfile.TemporaryDirectory(prefix="upstream-") as name:
        folder = Path(name)
        file = folder / "test_linalg.py"
        file.write_text(for_later_torch(source.read_text(encoding="utf-8")), encoding="utf-8")
        count = int(session.options["shards"])
        shards = [
            Shard(library, config(session, library, shard, count), folder, f"{shard}")
            for shard in range(count)
            for library in (STOCK, OVERRIDES)
        ]
        run_shards(shards, file, device, deadline)
        outcomes = merge(shards)
        difference = compare.compare(outcomes[STOCK], outcomes[OVERRIDES], ())
        again = run_again(
            difference.only_patched,
            (STOCK, OVERRIDES),
            lambda library, few: config(session, library, 0, 1, only=few),
            folder,
            file,
            device,
        )
    _report(session, shards, outcomes, difference, again)


def _report(
    session: Session,
    shards: Sequence[Shard],
    outcomes: dict[str, compare.Outcomes],
    difference: compare.Difference,
    again: Sequence[str],
) -> None:
    of = f"{session.options['part'] + 1} of {session.options['parts']}"
    which = {"tests": "others" if session.options["others"] else "of linear solvers", "part": of}
    report_ran(session, shards, outcomes, **which)
    confirmed = [name for name in difference.only_patched if name not in again]
    with session.check("upstream: none fails only with the overrides", **which) as check:
        compared = outcomes[STOCK].results.keys() & outcomes[OVERRIDES].results.keys()
        check.ok = not confirmed and bool(compared)
        check.value = {
            "compared": len(compared),
            "only with the overrides": confirmed,
            "only without": list(difference.only_unpatched),
            "cleared by a second run": list(again),
        }
        check.reason = "; ".join(
            f"{name}: {outcomes[OVERRIDES].results[name]['message'][:160]}"
            for name in confirmed[:12]
        )
    with session.check("upstream: none is skipped only with the overrides", **which) as check:
        check.ok, check.value = not difference.lost, list(difference.lost)
    with session.check("upstream: fail without the overrides too", **which) as check:
        check.skip, check.value = True, list(difference.both)
