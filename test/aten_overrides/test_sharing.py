"""LUSolveSharing.h: which factor serves which right-hand side, against broadcasting itself."""

from __future__ import annotations

import itertools
import math
import subprocess
from pathlib import Path

import pytest

from aten_overrides import _compile

MAIN = """
#include "LUSolveSharing.h"
#include <cstdio>
#include <iostream>
#include <vector>
int main() {
  for (int left = 0, right = 0; std::cin >> left >> right;) {
    std::vector<int64_t> factors(left), sides(right);
    for (auto& size : factors) std::cin >> size;
    for (auto& size : sides) std::cin >> size;
    const auto found = at::native::lu_solve_routes::sharing_of(factors, sides, 5);
    std::printf("%d %ld %ld %ld\\n", found.regular, found.factors, found.batch, found.nrhs);
  }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharing")
    (folder / "main.cpp").write_text(MAIN)
    output = folder / "main"
    include = _compile.CSRC / "linalg"
    command = ["g++", "-std=c++17", "-Wall", "-Werror", f"-I{include}", "-o", str(output)]
    subprocess.run([*command, str(folder / "main.cpp")], check=True)
    return output


def factor_of_each(factors: tuple[int, ...], sides: tuple[int, ...]) -> list[int]:
    """The number of the factor that broadcasting gives each right-hand side."""
    padded = (1,) * (len(sides) - len(factors)) + factors
    found = []
    for place in itertools.product(*map(range, sides)):
        number = 0
        for index, size in zip(place, padded, strict=True):
            number = number * size + (index if size > 1 else 0)
        found.append(number)
    return found


def patterns() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Right-hand sides of up to four batch dimensions, and all factors that go with them."""
    made: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for sides in ((), (1,), (3,), (2, 3), (1, 3), (3, 1), (2, 1, 3), (2, 3, 4), (2, 3, 2, 2)):
        for skipped in range(len(sides) + 1):
            rest = sides[skipped:]
            for kept in itertools.product(*[sorted({1, size}) for size in rest]):
                made.append((kept, sides))
    return made


def test_the_factor_of_every_side_is_that_of_broadcasting(program: Path) -> None:
    asked = patterns()
    lines = [
        " ".join(map(str, (len(factors), len(sides), *factors, *sides))) for factors, sides in asked
    ]
    done = subprocess.run(
        [str(program)], input="\n".join(lines), check=True, capture_output=True, text=True
    )
    kinds = set()
    for (factors, sides), line in zip(asked, done.stdout.splitlines(), strict=True):
        regular, used, batch, columns = map(int, line.split())
        expected = factor_of_each(factors, sides)
        if regular:
            each = columns // 5
            served = [item % used for item in range(batch) for _ in range(each)]
            assert used == math.prod(factors) and batch * each == len(expected)
            assert served == expected, (factors, sides)
        else:
            assert (used, batch, columns) == (math.prod(factors), len(expected), 5)
            # No row of columns and no turn of factors would do.
            for each in range(1, len(expected) + 1):
                in_turn = [i // each % used for i in range(len(expected))]
                assert in_turn != expected, (factors, sides)
        kinds.add((bool(regular), used > 1, columns > 5))
    assert {(True, True, False), (True, True, True), (False, True, False)} <= kinds
