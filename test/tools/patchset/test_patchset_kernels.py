"""CUDA kernels of a series: which nvcc, what is left out without one, and that they are linked."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import fake_base
import pytest
import toy_wheel
from test_patchset_overlay import TABLES

from aotools.env import UserError
from aotools.patchset import apply, check, cli, git, kernels, relink, wheel
from aotools.patchset.base import LINALG, Base
from aotools.patchset.report import Report
from aten_overrides import _nvcc

SOURCE = f"{LINALG}/BatchLinearAlgebra.cpp"
# Compiles as C++ what it is given, so that no CUDA toolkit is needed.
NVCC = """\
#!{python}
import subprocess, sys
words, command = iter(sys.argv[1:]), ["g++", "-fPIC", "-D__global__="]
for word in words:
    if word == "--version":
        print("Cuda compilation tools, release {version}, V{version}.1")
        sys.exit(0)
    if word == "-ccbin":
        next(words)
    elif word.startswith("-isystem="):
        command += ["-isystem", word[9:]]
    elif not word.startswith(("-Xcompiler", "-diag-suppress", "-gencode")):
        command += ["-x", "c++", word] if word.endswith(".cu") else [word]
sys.exit(subprocess.run(command).returncode)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = toy_wheel.make(tmp_path_factory.mktemp("toy") / "site")
    hipify = {"__init__.py": "", "hipify_python.py": TABLES}
    fake_base.write_files(made / "torch/utils/hipify", hipify)
    return made


@pytest.fixture(autouse=True)
def no_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """None but what a test puts into tmp_path, and a cache of the test's own."""
    real = _nvcc._candidates

    def only_given(sites: list[Path], cuda: str) -> list[Path]:
        return [path for path in real(sites, cuda) if path.is_relative_to(tmp_path)]

    monkeypatch.setattr(_nvcc, "_candidates", only_given)
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(tmp_path / "cache"))
    for name in ("CUDA_HOME", "CUDA_PATH", _nvcc.ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    yield


def toolkit(folder: Path, version: str) -> Path:
    path = folder / "bin/nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(NVCC.format(python=sys.executable, version=version))
    path.chmod(0o755)
    return path


def with_kernels(folder: Path, kernel: str = "int value() { return 7; }\n") -> tuple[Base, Path]:
    """The toy base with one patch that calls a kernel of the next one, and one behind it."""
    repo = fake_base.write_files(folder / "repo", toy_wheel.base_files())
    git.init(repo)
    made = {}
    text = (repo / SOURCE).read_text()
    states = [
        {},
        {SOURCE: text + "int before = 1;\n"},
        {
            SOURCE: text + "int before = 1;\nint value();\nint used = value();\n",
            f"{LINALG}/native/Kernel.cu": "#include <ATen/Mode.h>\n" + kernel,
            f"{LINALG}/native/Host.cpp": "int host() { return 3; }\n",
        },
        {"docs/last.rst": "Last\n"},
    ]
    for index, files in enumerate(states):
        fake_base.write_files(repo, files)
        git.git(repo, "add", "-A")
        message = f"Change {index}\n\n{fake_base.FIELDS}"
        git.git(repo, "commit", "-qm", message, extra=git.BASE_AUTHOR)
        if index:
            mail = git.git(repo, "format-patch", "--full-index", "--stdout", "-1")
            made[f"change-{index}.patch"] = mail.decode()
    return toy_wheel.toy_base(folder, made)


def test_without_nvcc_the_series_ends_before_the_kernels(site: Path, tmp_path: Path) -> None:
    base, _ = with_kernels(tmp_path)
    patches = base.patches()
    assert [kernels.adds_kernels(patch) for patch in patches] == [False, True, False]
    found = kernels.buildable(patches, wheel.inspect(site))
    assert [patch.name for patch in found.patches] == ["change-1.patch"]
    assert found.nvcc is None
    assert found.note().startswith("left out: change-2.patch, change-3.patch, because no usable")
    assert "install a CUDA 12.4 toolkit and name it by CUDA_HOME" in found.note()
    unasked = kernels.buildable(patches[:1], wheel.inspect(site), asked="change-1")
    assert (unasked.patches, unasked.note()) == (patches[:1], "")
    with pytest.raises(UserError, match=r"(?s)change-2.patch adds CUDA.*--patches change-1"):
        kernels.buildable(patches, wheel.inspect(site), asked="change-3")


def test_kernels_are_compiled_and_linked(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, source = with_kernels(tmp_path)
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "cuda", "12.4").parents[1]))
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--unknown")  # would change what is kept
    wheel_ = wheel.inspect(site)
    found = kernels.buildable(base.patches(), wheel_, architectures="80,90")
    assert found.left_out == [] and found.nvcc is not None
    tree = apply.plain_tree(base, source, found.patches, tmp_path / "trees")

    def build() -> relink.Relinked:
        return relink.relink(
            base, tree, found.patches, wheel_, tmp_path / "out", quiet=True, nvcc=found.nvcc
        )

    made = build()  # which links only if Kernel.cu is there
    assert made.facts["kernels"] == {"nvcc": "12.4", "architectures": ["80", "90"]}
    assert (made.library.parent / "include/ATen/native/cuda/linalg/native/Host.cpp").is_file()
    assert not build().built
    # Another text of the kernel is another library.
    (tree / LINALG / "native/Kernel.cu").write_text("int value() { return 8; }\n")
    assert build().built


def test_a_tree_with_kernels_needs_nvcc(site: Path, tmp_path: Path) -> None:
    base, source = with_kernels(tmp_path)
    tree = apply.plain_tree(base, source, base.patches(), tmp_path / "trees")
    with pytest.raises(UserError, match=r"Kernel.cu need nvcc, and no usable nvcc"):
        relink.relink(base, tree, base.patches(), wheel.inspect(site), tmp_path / "out", quiet=True)
    assert not (tmp_path / "out" / relink.SONAME).exists()


def test_a_named_nvcc_may_be_newer_but_not_older(site: Path, tmp_path: Path) -> None:
    wheel_ = wheel.inspect(site)
    newer = kernels.find(wheel_, nvcc=toolkit(tmp_path / "new", "13.0"), architectures="90")
    assert (newer.version, newer.architectures) == ("13.0", ("90",))
    with pytest.raises(UserError, match=r"is of CUDA 11.8, and torch 0.1\+cu124 uses CUDA 12.4"):
        kernels.find(wheel_, nvcc=toolkit(tmp_path / "old", "11.8"))
    with pytest.raises(UserError, match="does not run"):
        kernels.find(wheel_, nvcc=tmp_path / "none")
    with pytest.raises(UserError, match="contradict"):
        kernels.find(wheel_, nvcc=newer.path, architectures="none")
    with pytest.raises(UserError, match="expected compute capabilities"):
        kernels.find(wheel_, nvcc=newer.path, architectures="ninety")


def test_the_command_line_tells_what_it_leaves_out_and_which_driver(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, source = with_kernels(tmp_path)

    def run(*more: str) -> int:
        command = ["relink", "--base", "v0.1", "--patches-root", str(base.folder.parent)]
        command += ["--source", "dir", str(source), "--wheel", str(site), *more]
        monkeypatch.setattr(sys, "argv", ["patchset", *command, "--out", str(tmp_path / "out")])
        return cli.main()

    assert run() == 0
    said = capsys.readouterr()
    assert "left out: change-2.patch, change-3.patch" in said.err
    assert "1 patches" in said.out and "kernels for" not in said.out
    assert run("--nvcc", str(toolkit(tmp_path / "cuda", "13.1")), "--architectures", "90") == 0
    said = capsys.readouterr()
    assert "left out" not in said.err and "3 patches" in said.out
    assert "kernels for sm_90 by nvcc 13.1; they need a driver for CUDA 13.1" in said.out
    with pytest.raises(UserError, match="--patches change-1"):
        run("--patches", "change-2")


def kernel_lines(site: Path, folder: Path, kernel: str) -> list[str]:
    """What the check says about kernels."""
    base, source = with_kernels(folder, kernel)
    report = Report(stream=io.StringIO())
    own, build = folder / "own", folder / "build"
    check.run(base, source, wheel_spec=str(site), fast=False, build=build, own=own, report=report)
    assert [name for name in check.planned(base, fast=False) if "kernels" in name] == [
        f"after change-{number}.patch: kernels compile" for number in (2, 3)
    ]
    found = [finding for finding in report.findings if "kernels compile" in finding.item]
    assert [finding.item for finding in found] == [
        f"after change-{number}.patch: kernels compile" for number in (2, 3)
    ]
    return [finding.verdict for finding in found]


@pytest.mark.parametrize(
    ("kernel", "verdict"), [("int value();\n", "PASS"), ("int value() { return x; }\n", "FAIL")]
)
def test_check_compiles_kernels_by_any_nvcc(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, verdict: str
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "cuda", "13.0").parents[1]))
    assert kernel_lines(site, tmp_path, kernel) == [verdict, verdict]


def test_check_tells_that_there_is_no_nvcc(site: Path, tmp_path: Path) -> None:
    assert kernel_lines(site, tmp_path, "int value();\n") == ["SKIP", "SKIP"]
