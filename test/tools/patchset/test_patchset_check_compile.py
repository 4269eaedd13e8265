"""The compiling part of tools/patchset check, on the toy wheel: what is found and said."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import fake_base
import pytest
import toy_wheel
from test_patchset_overlay import TABLES

from aotools.patchset import check, git
from aotools.patchset.base import LINALG
from aotools.patchset.report import Report

SOURCE = f"{LINALG}/BatchLinearAlgebra.cpp"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = toy_wheel.make(tmp_path_factory.mktemp("toy") / "site")
    hipify = {"__init__.py": "", "hipify_python.py": TABLES}
    fake_base.write_files(made / "torch/utils/hipify", hipify)
    return made


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "check-compile-cache"
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(folder))


def patches(folder: Path, added: Sequence[str]) -> dict[str, str]:
    """One patch for each text, which it puts at the end of the source."""
    repo = fake_base.write_files(folder / "repo", toy_wheel.base_files())
    git.init(repo)
    made = {}
    for index, text in enumerate(["", *added]):
        (repo / SOURCE).write_text((repo / SOURCE).read_text() + text)
        git.git(repo, "add", "-A")
        message = f"Change {index}\n\n{fake_base.FIELDS}"
        git.git(repo, "commit", "-qm", message, extra=git.BASE_AUTHOR)
        if index:
            mail = git.git(repo, "format-patch", "--full-index", "--stdout", "-1")
            made[f"change-{index}.patch"] = mail.decode()
    return made


def compile_lines(site: Path, folder: Path, added: Sequence[str]) -> list[str]:
    """What the check says about compiling, without the parts that the toy has nothing for."""
    base, source = toy_wheel.toy_base(folder, patches(folder, added))
    stream = io.StringIO()
    report = Report(stream=stream)
    build, own = folder / "build", folder / "own"
    check.run(base, source, wheel_spec=str(site), fast=False, build=build, own=own, report=report)
    return [
        f"{finding.verdict} {finding.item}"
        for finding in report.findings
        if finding.item.startswith("after") and finding.verdict != "SKIP"
    ]


GUARDED = (
    "#include <ATen/cuda/CUDAConfig.h>\n#if AT_MAGMA_ENABLED()\nint m = 1;\n#else\n{}\n#endif\n"
)


def test_everything_is_looked_at_after_each_patch(site: Path, tmp_path: Path) -> None:
    lines = compile_lines(site, tmp_path, [GUARDED.format("int m = 2;"), "int other = m;\n"])
    assert lines == [
        f"PASS after change-{number}.patch: {what}"
        for number in (1, 2)
        for what in (
            "linalg units compile",
            "without MAGMA",
            "ROCm with MAGMA",
            "ROCm without MAGMA",
        )
    ]


def test_a_patch_that_only_compiles_together_with_the_next(site: Path, tmp_path: Path) -> None:
    opened = f"{GUARDED.format('int m = 2;')}namespace opened {{\n"
    lines = compile_lines(site, tmp_path, [opened, "}  // namespace opened\n"])
    assert [line.partition(" ")[0] for line in lines] == ["FAIL"] * 4 + ["PASS"] * 4


@pytest.mark.parametrize(
    ("added", "item"),
    [
        (GUARDED.format("int m = missing;"), "without MAGMA"),
        (
            GUARDED.format("int m = 2;") + "#ifdef USE_ROCM\nint r = missing;\n#endif\n",
            "ROCm with MAGMA",
        ),
        (
            GUARDED.format("#ifdef USE_ROCM\nint m = missing;\n#else\nint m = 2;\n#endif"),
            "ROCm without MAGMA",
        ),
    ],
)
def test_a_branch_that_does_not_compile(site: Path, tmp_path: Path, added: str, item: str) -> None:
    lines = compile_lines(site, tmp_path, [added])
    failed = {line.partition(": ")[2] for line in lines if line.startswith("FAIL")}
    assert item in failed
    assert "linalg units compile" not in failed


def test_what_the_base_has_not_is_skipped_with_a_reason(site: Path, tmp_path: Path) -> None:
    base, source = toy_wheel.toy_base(tmp_path, patches(tmp_path, ["int x = 1;\n"]))
    stream = io.StringIO()
    check.run(
        base,
        source,
        wheel_spec=str(site),
        fast=False,
        build=tmp_path / "build",
        own=tmp_path / "own",
        report=Report(stream=stream),
    )
    said = stream.getvalue()
    assert (
        "SKIP after change-1.patch: Context.cpp: aten/src/ATen/Context.cpp is not among the base's "
        "files" in said
    )
    assert "FAIL after change-1.patch: without MAGMA: there is nothing to compile" in said


def test_a_wheel_that_cannot_be_used_fails_the_check(tmp_path: Path) -> None:
    base, source = toy_wheel.toy_base(tmp_path, patches(tmp_path, ["int x = 1;\n"]))
    report = Report(stream=io.StringIO())
    check.run(
        base,
        source,
        wheel_spec=str(tmp_path),
        fast=False,
        build=tmp_path / "build",
        own=tmp_path / "own",
        report=report,
    )
    assert report.exit_code == 1
    assert "holds no torch" in str(report.findings[-1])
