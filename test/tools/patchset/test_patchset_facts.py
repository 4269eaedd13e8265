"""The ELF reader, against libraries that the test links itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aotools.env import UserError
from aotools.patchset import facts

SOURCE = r"""
#include <cstdio>
#include <string>
extern "C" int helper(int);
__attribute__((visibility("hidden"))) int hidden_one() { return 1; }
int shown(int n) { return helper(n) + hidden_one(); }
extern "C" __attribute__((visibility("default"))) int also_shown() { return std::puts("x"); }
std::string text(const std::string& s) { return s + s; }
"""


def link(folder: Path, name: str, source: str, *options: str) -> Path:
    path = folder / f"{name}.cpp"
    path.write_text(source)
    made = folder / f"lib{name}.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", made, path, *options], check=True)
    return made


@pytest.fixture(scope="module", params=["gnu", "sysv"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    helper = 'extern "C" int helper(int n) { return n; }\n'
    link(folder, "helper", helper, "-Wl,-soname,libhelper.so.7")
    options = [f"-L{folder}", "-lhelper", "-Wl,-soname,libthing.so.1", "-Wl,--enable-new-dtags"]
    options += ["-Wl,-rpath,$ORIGIN/../lib:/opt/lib", f"-Wl,--hash-style={request.param}"]
    return link(folder, "thing", SOURCE, *options)


def test_names_and_paths(library: Path) -> None:
    elf = facts.read(library)
    assert elf.soname == "libthing.so.1"
    assert elf.needed[0] == "libhelper.so.7"
    assert "libstdc++.so.6" in elf.needed
    assert (elf.rpath, elf.runpath) == ((), ("$ORIGIN/../lib", "/opt/lib"))


def test_symbols(library: Path) -> None:
    elf = facts.read(library)
    assert {"_Z5showni", "also_shown"} <= elf.defined
    assert {"helper", "puts"} <= elf.undefined
    assert not any("hidden_one" in name for name in elf.defined | elf.undefined)
    assert any("__cxx11" in name for name in elf.defined)


def test_the_newest_version_is_by_number(library: Path) -> None:
    elf = facts.read(library)
    assert elf.newest("GLIBC").startswith("2.")
    assert elf.newest("GLIBCXX").startswith("3.4")
    assert elf.newest("NONE") == ""
    made = facts.Elf(
        library, "", (), (), (), frozenset(), frozenset(), frozenset({"GLIBC_2.9", "GLIBC_2.34"})
    )
    assert made.newest("GLIBC") == "2.34"


def test_an_old_rpath_is_told_apart(library: Path, tmp_path: Path) -> None:
    old = link(
        tmp_path, "old", "int f() { return 0; }\n", "-Wl,--disable-new-dtags", "-Wl,-rpath,/a:/b"
    )
    assert (facts.read(old).rpath, facts.read(old).runpath) == (("/a", "/b"), ())


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF\x02\x01" + b"\0" * 10])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.so"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a shared library that can be read"):
        facts.read(path)
    with pytest.raises(UserError, match="not a shared library"):
        facts.read(tmp_path / "absent.so")


def test_a_cut_library_is_refused(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(library.read_bytes()[:3000])
    with pytest.raises(UserError, match="not a shared library"):
        facts.read(path)
