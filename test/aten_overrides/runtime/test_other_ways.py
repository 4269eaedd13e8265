"""The ways in which scan and bench run a call, on the stock wheel of torch 2.11.0 without a GPU:
each sets what it says for its block, and leaves everything as it was.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.wheel

CODE = """
import torch
from aten_overrides import _runtime
from aten_overrides.scan import backends, sides
from aten_overrides.scan.target import Target

def state():
    return int(torch._C._get_linalg_preferred_backend()), _runtime.is_enabled()

PREFERENCES = {"stock, default": 0, "stock, cusolver": 1, "stock, magma": 2}
assert state() == (0, False)
for op in ("solve_ex", "eigh", "eigvalsh", "lu_solve", "qr", "svdvals"):
    for prefer, overrides in (("", False), ("cusolver", False), ("", True), ("cusolver", True)):
        if overrides and op == "svdvals":
            continue
        target = Target(op=op, batch=4, prefer=prefer, overrides=overrides)
        with sides.surroundings(target):
            outside = (int(prefer == "cusolver"), overrides)
            assert state() == outside
            ways, reason = backends.alternatives(target, torch)
            assert not reason, reason
            for way in ways:
                with way.enter():
                    expected = (0, True) if way.name not in PREFERENCES else (
                        PREFERENCES[way.name], False)
                    assert state() == expected, (target, way.name, state())
                assert state() == outside, (target, way.name)
                try:
                    with way.enter():
                        raise ValueError("of the call")
                except ValueError:
                    pass
                assert state() == outside, (target, way.name)
        assert state() == (0, False)
        print(op, len(ways))
"""


def test_each_way_is_left_as_it_was_found(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = python(CODE)
    counts = dict(line.split() for line in done.stdout.splitlines())
    assert counts["svdvals"] == "2" and int(counts["qr"]) >= 6 and int(counts["solve_ex"]) >= 6
