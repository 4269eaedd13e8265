"""tools/python.sh: which interpreter it takes, and what it says when none will do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

from aotools.env import ROOT

# A stand-in for another Python: the real one, made to report other facts about itself.
FAKE = """#!/bin/sh
exec {real} -c '
import platform, sys
sys.version_info = {version}
sys.executable = "{name}"
sys.abiflags = "{abiflags}"
platform.python_implementation = lambda: "{implementation}"
exec(sys.argv[1])' "$2"
"""


class Checkout:
    """A checkout that holds python.sh alone, and a PATH with no Python but those asked for."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "check out"  # the blank is meant
        self.bin = folder / "bin"
        (self.root / "tools").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "tools/python.sh", self.root / "tools")
        for name in ("bash", "cat", "dirname", "sh"):
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)

    def add(
        self,
        name: str,
        version: tuple[int, int, int],
        *,
        abiflags: str = "",
        implementation: str = "CPython",
        folder: Path | None = None,
    ) -> Path:
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            FAKE.format(
                real=sys.executable,
                version=version,
                name=f"/fake/{name}",
                abiflags=abiflags,
                implementation=implementation,
            )
        )
        path.chmod(0o755)
        return path

    def choose(self, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", 'source "$1" && choose_python && echo "$aotools_python"', "-",
             str(self.root / "tools/python.sh")],
            env={"PATH": str(self.bin), **variables},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_takes_each_supported_version(checkout: Checkout, minor: int) -> None:
    checkout.add("python3", (3, minor, 4))
    assert checkout.choose().stdout == "/fake/python3\n"


@pytest.mark.parametrize("minor", [8, 9, 14, 15])
def test_refuses_the_versions_around_them(checkout: Checkout, minor: int) -> None:
    checkout.add("python3", (3, minor, 0))
    done = checkout.choose()
    assert done.returncode == 2
    assert f"found:  Python 3.{minor}.0 at /fake/python3\n" in done.stderr


def test_passes_over_an_unsuitable_python3(checkout: Checkout) -> None:
    checkout.add("python3", (3, 14, 0))
    checkout.add("python3.11", (3, 11, 9))
    assert checkout.choose().stdout == "/fake/python3.11\n"


def test_the_named_one_is_taken_or_refused_never_replaced(checkout: Checkout) -> None:
    checkout.add("python3", (3, 11, 9))
    other = checkout.add("python", (3, 12, 1), folder=checkout.root / "other")
    assert checkout.choose(PYTHON=str(other)).stdout == "/fake/python\n"
    done = checkout.choose(PYTHON="/nowhere/python")
    assert done.returncode == 2
    assert "found:  /nowhere/python: it does not run\n" in done.stderr


def test_the_checkouts_own_environment_comes_before_path(checkout: Checkout) -> None:
    checkout.add("python3", (3, 11, 9))
    checkout.add("python", (3, 13, 0), folder=checkout.root / ".venv/bin")
    assert checkout.choose().stdout == "/fake/python\n"


def test_the_users_own_python_is_handed_on(checkout: Checkout) -> None:
    """`--torch existing` asks it, not .venv's: an active virtual environment is first on PATH."""
    active = checkout.add("python3", (3, 11, 9), folder=checkout.root / "active/bin")
    checkout.add("python3", (3, 12, 1))
    checkout.add("python", (3, 13, 0), folder=checkout.root / ".venv/bin")

    def handed_on(**variables: str) -> str:
        code = 'source "$1"; prepare_python; echo "$AOTOOLS_USER_PYTHON|$aotools_python"'
        return subprocess.run(
            ["bash", "-c", code, "-", str(checkout.root / "tools/python.sh")],
            env={"PATH": f"{active.parent}:{checkout.bin}", **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    assert handed_on() == f"{active}|/fake/python"
    named = str(checkout.bin / "python3")
    assert handed_on(PYTHON=named) == f"{named}|/fake/python3"


def test_a_broken_environment_is_passed_over(checkout: Checkout) -> None:
    checkout.add("python3", (3, 11, 9))
    (checkout.root / ".venv/bin").mkdir(parents=True)
    (checkout.root / ".venv/bin/python").symlink_to("/nowhere/python3.9")
    assert checkout.choose().stdout == "/fake/python3\n"


@pytest.mark.parametrize(
    ("abiflags", "implementation", "said"),
    [
        ("t", "CPython", "Python 3.13.0 at /fake/python3, free-threaded"),
        ("", "PyPy", "PyPy 3.13.0 at /fake/python3"),
    ],
)
def test_refuses_other_builds(
    checkout: Checkout, abiflags: str, implementation: str, said: str
) -> None:
    checkout.add("python3", (3, 13, 0), abiflags=abiflags, implementation=implementation)
    done = checkout.choose()
    assert done.returncode == 2
    assert f"found:  {said}\n" in done.stderr


def test_refusal_names_everything_found_and_what_to_do(checkout: Checkout) -> None:
    checkout.add("python3", (3, 14, 0))
    checkout.add("python3.10", (3, 9, 2))  # a name may lie
    done = checkout.choose()
    assert (done.returncode, done.stdout) == (2, "")
    assert_expected_inline(
        done.stderr,
        """\
error: no Python that this project can use.
  needed: CPython 3.10, 3.11, 3.12 or 3.13 (torch 2.6.0 and 2.11.0 have wheels for all four)
  found:  Python 3.14.0 at /fake/python3
          Python 3.9.2 at /fake/python3.10
  to do:  install one, for example with one of
            apt-get install python3 python3-venv    (Debian 12 and 13, Ubuntu 22.04 and 24.04)
            uv python install 3.12
            pyenv install 3.12
          and run again with it first on PATH, or named: PYTHON=/path/to/python3.12
""",
    )


def test_refusal_without_any_python(checkout: Checkout) -> None:
    done = checkout.choose()
    assert done.returncode == 2
    assert "found:  none of python3, python3.13 ... python3.10 is on PATH\n" in done.stderr


def test_refuses_a_path_that_pythonpath_cannot_hold(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "a:b")
    done = subprocess.run(
        ["bash", "-c", 'source "$1"; prepare_python', "-", str(checkout.root / "tools/python.sh")],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "holds a colon" in done.stderr


@pytest.mark.parametrize("name", ["test", "quickstart", "patchset", "gpu-test", "compat"])
def test_every_entry_refuses_an_old_python(checkout: Checkout, name: str) -> None:
    old = checkout.add("python3", (3, 9, 18))
    done = subprocess.run(
        [ROOT / "tools" / name, "--help"],
        env={**os.environ, "PYTHON": str(old)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no Python that this project can use.")
