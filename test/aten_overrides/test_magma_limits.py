"""MagmaLimits.h: which of stock's calls go to MAGMA, against torch's rule in Python, and shapes."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path

import pytest

from aten_overrides import _compile, _select, _stock_rule

MAIN = """
#include "MagmaLimits.h"
#include <cstdio>
#include <cstdlib>
using namespace aten_overrides::gpu;
int main(int, char** argv) {
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  if (argv[1][0] == 's') {
    std::printf("%d", stock_lu_solve_may_be_magma(number(2), number(3), number(4), number(5) != 0));
    return 0;
  }
  const char* why = magma_refuses_lu(number(2), number(3), number(4));
  std::printf(
      "%d %s", stock_lu_is_magma(number(2), number(3), number(4)), why != nullptr ? why : "");
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("magma")
    (folder / "main.cpp").write_text(MAIN)
    output = folder / "main"
    include = _compile.CSRC / "package/gpu"
    command = ["g++", "-std=c++17", "-Wall", "-Werror", f"-I{include}", "-o", str(output)]
    command += ["-fsanitize=undefined", "-fno-sanitize-recover", str(folder / "main.cpp")]
    subprocess.run(command, check=True)
    return output


def asked(program: Path, *arguments: object) -> tuple[bool, str]:
    done = subprocess.run(
        [str(program), *map(str, arguments)], check=True, capture_output=True, text=True, timeout=20
    )
    answer, _, why = done.stdout.partition(" ")
    return answer == "1", why


def test_stock_goes_to_magma_where_torch_s_rule_says(program: Path) -> None:
    facts = _select.Facts()
    for batch, m, n in product((1, 2, 16, 17, 70000), (1, 16, 17, 128, 129, 513), (16, 128, 129)):
        problem = _select.Problem(batch, m, n)
        expected = _stock_rule.lu_factor(problem, "default", facts) == "stock"
        assert asked(program, "lu", batch, m, n) == (expected, ""), (batch, m, n)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((4, 46340, 46341), ""),  # 2147441940 elements, and 2^31 - 1 is 2147483647
        ((4, 46341, 46341), "offsets"),
        ((1, 1, 2**31 - 1), ""),
        ((1, 2**31 - 1, 1), ""),
        ((1, 2**31, 1), "below 2^31"),
        ((1, 3, 2**30), "offsets"),
        ((1, 2**62, 2**62), "below 2^31"),
        ((0, 5, 5), "without elements"),
        ((5, 0, 5), "without elements"),
        ((5, 5, 0), "without elements"),
        ((10**9, 2, 2), ""),  # in parts of 65535
    ],
)
def test_shapes_that_it_may_not_be_given(
    program: Path, shape: tuple[int, int, int], why: str
) -> None:
    found = asked(program, "lu", *shape)[1]
    assert (why in found) if why else not found


@pytest.mark.parametrize(
    ("batch", "n", "nrhs", "transposed", "expected"),
    [
        (9, 513, 1, 1, True),
        (8, 513, 1, 0, False),
        (9, 512, 600, 0, False),
        (2, 8, 256, 0, True),
        (2, 8, 256, 1, False),
        (2, 9, 256, 0, False),
        (2, 8, 255, 0, False),
    ],
)
def test_lu_solve(
    program: Path, batch: int, n: int, nrhs: int, transposed: int, expected: bool
) -> None:
    assert asked(program, "solve", batch, n, nrhs, transposed)[0] is expected
