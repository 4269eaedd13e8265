"""Parts.h: a batch in parts, some of them refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aten_overrides import _compile

MAIN = """
#include "Parts.h"
#include <cstdio>
#include <cstdlib>
int main(int, char** argv) {
  const long total = std::atol(argv[1]), most = std::atol(argv[2]), accepted = std::atol(argv[3]);
  const long done = aten_overrides::gpu::in_parts(total, most, [&](long first, long count) {
    const bool ok = count <= accepted;
    std::printf("%ld+%ld%s ", first, count, ok ? "" : "!");
    return ok;
  });
  std::printf("= %ld", done);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    (folder / "main.cpp").write_text(MAIN)
    output = folder / "main"
    include = _compile.CSRC / "package/gpu"
    command = ["g++", "-std=c++17", "-Wall", "-Werror", f"-I{include}", "-o", str(output)]
    subprocess.run([*command, str(folder / "main.cpp")], check=True)
    return output


@pytest.mark.parametrize(
    ("total", "most", "accepted", "expected"),
    [
        (5, 2, 9, "0+2 2+2 4+1 = 5"),
        (5, 5, 9, "0+5 = 5"),
        (9, 9, 3, "0+9! 0+4! 0+2 2+2 4+2 6+2 8+1 = 9"),
        (3, 2, 0, "0+2! 0+1! = 0"),
        (0, 4, 4, "= 0"),
        (4, 0, 4, "= 0"),
    ],
)
def test_parts(program: Path, total: int, most: int, accepted: int, expected: str) -> None:
    command = [str(program), str(total), str(most), str(accepted)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    assert done.stdout.strip() == expected
