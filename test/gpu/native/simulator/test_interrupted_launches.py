"""A smaller call of another thread between a launch's preparations and the launch itself.

What a kernel may use of shared memory is a setting of the kernel on the device, so a call that sets
what it needs itself takes away what another thread has just set. The simulated device refuses a
launch with more than is set at that moment, as a GPU does ("invalid argument").
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from checks import assert_factored  # noqa: E402
from library import Library, Plan  # noqa: E402

CALL = ctypes.CFUNCTYPE(None)

# By kernel: a shape (batch, m, n) with its plan, and the smaller one; both over 48 KB.
CASES = {
    "block": ((1, 250, 80), Plan("block"), (1, 240, 70), Plan("block")),
    "panel": ((1, 330, 64), Plan("blocked", 64, 64), (1, 270, 64), Plan("blocked", 64, 64)),
    "exchange": ((1, 200, 136), Plan("blocked", 32, 128), (1, 160, 100), Plan("blocked", 32, 96)),
    "finish": ((1, 450, 64), Plan("blocked", 16, 32), (1, 430, 64), Plan("blocked", 16, 32)),
}


def random(shape: tuple[int, int, int], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def launches(library: Library, a: torch.Tensor, plan: Plan) -> int:
    """How many kernels the call starts."""
    unused, many = CALL(lambda: None), 10**6
    library._library.simulated_interrupt(unused, many)
    library.lu(a, plan=plan)
    left = int(library._library.simulated_interrupt_left())
    library._library.simulated_interrupt(CALL(), 0)
    return many - left


def interrupted(
    library: Library, big: tuple[torch.Tensor, Plan], small: tuple[torch.Tensor, Plan], after: int
) -> None:
    """Runs `small` when `big` has prepared its launch number `after`; checks both."""
    between: list[tuple[torch.Tensor, ...] | Exception] = []

    def other() -> None:
        try:
            between.append(library.lu(small[0], plan=small[1]))
        except Exception as error:  # ctypes would only print it
            between.append(error)

    kept = CALL(other)
    library._library.simulated_interrupt(kept, after)
    assert_factored(big[0], *library.lu(big[0], plan=big[1]))
    assert library._library.simulated_interrupt_left() == -1
    found = between[0]
    if isinstance(found, Exception):
        raise found
    assert_factored(small[0], *found)


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(kernel, torch.float32) for kernel in CASES if kernel != "exchange"]  # it needs under 48 KB
    + [("block", torch.complex64), ("exchange", torch.float64), ("exchange", torch.complex128)],
)
def test_a_smaller_call_between(library: Library, kernel: str, dtype: torch.dtype) -> None:
    shape, plan, smaller, its_plan = CASES[kernel]
    big, small = random(shape, dtype), random(smaller, dtype)
    count = launches(library, big, plan)
    # The solve is the last launch of its case; the others are at every place.
    for after in range(count - 1 if kernel == "solve" else 0, count):
        interrupted(library, (big, plan), (small, its_plan), after)


def test_the_device_refuses_what_is_not_allowed(library: Library) -> None:
    """Else the test above could not fail."""
    assert library._library.simulated_try_launch(48 * 1024, 0) == 0
    assert library._library.simulated_try_launch(48 * 1024 + 1, 0) == 1
    assert library._library.simulated_try_launch(60 * 1024, 60 * 1024) == 0
    assert library._library.simulated_try_launch(60 * 1024 + 1, 60 * 1024) == 1
    assert library._library.simulated_try_launch(40 * 1024, 300 * 1024) == 1
