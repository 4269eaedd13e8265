"""EighCalls.h: how a batch is cut into calls of a batched routine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "aten_overrides" / "csrc" / "linalg" / "EighCalls.h"

# Reads "batch most limit" a line; prints what is returned, how often `fits` was asked, and what it
# was asked last.
PROGRAM = f"""
#include "{HEADER}"
#include <cstdio>
int main() {{
  long long batch, most, limit;
  while (std::scanf("%lld %lld %lld", &batch, &most, &limit) == 3) {{
    int asked = 0;
    long long last = 0;
    const auto fits = [&](int64_t matrices) {{
      ++asked;
      last = matrices;
      return matrices <= limit;
    }};
    const long long matrices =
        at::native::eigh_choice::matrices_of_equal_calls(batch, most, fits);
    std::printf("%lld %d %lld\\n", matrices, asked, last);
  }}
}}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    (folder / "main.cpp").write_text(PROGRAM)
    out = folder / "program"
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, str(folder / "main.cpp"), "-o", str(out)], check=True)
    return out


Case = tuple[int, int, int]


def answers(program: Path, cases: list[Case]) -> list[Case]:
    text = "".join(f"{batch} {most} {limit}\n" for batch, most, limit in cases)
    done = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True)
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    return [(row[0], row[1], row[2]) for row in rows]


sizes = st.one_of(st.integers(1, 50), st.integers(1, 2**40))


@given(cases=st.lists(st.tuples(sizes, st.one_of(st.just(0), sizes), sizes), min_size=1))
def test_calls_are_of_equal_size_and_fit(program: Path, cases: list[Case]) -> None:
    found = answers(program, cases)
    for (batch, most, limit), (matrices, asked, last) in zip(cases, found, strict=True):
        if most == 0:
            assert (matrices, asked) == (0, 0)
            continue
        assert 1 <= matrices <= min(batch, most, limit)
        assert matrices == last, "what fits was asked about what is returned"
        calls = -(-batch // matrices)
        rest = batch - (calls - 1) * matrices
        assert 1 <= rest <= matrices
        assert matrices == -(-batch // calls), "no fewer matrices would need as many calls"
        if batch <= min(most, limit):
            assert (matrices, asked) == (batch, 1)
        else:
            assert matrices > min(most, limit) // 4
        assert asked <= 42


def test_one_matrix_that_does_not_fit(program: Path) -> None:
    assert answers(program, [(5, 9, 0), (1, 1, 0)]) == [(0, 3, 1), (0, 1, 1)]
