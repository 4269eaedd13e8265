"""tools/patchset check: everything that patches/README.md promises about a series, first without
compiling.
"""

from __future__ import annotations

import ast
import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aotools import env
from aotools.env import UserError
from aotools.patchset import apply, base, copies, fetch
from aotools.patchset.base import LINALG, Base, Patch
from aotools.patchset.report import Report

OWN_SOURCES = copies.OWN_SOURCES
_LAUNCH_CHECKER = "torch/testing/_internal/check_kernel_launches.py"


def planned(base_: Base, *, fast: bool) -> list[str]:
    """The names of the items that `run` looks at."""
    names = ["series", *(f"header of {patch.name}" for patch in base_.patches())]
    names += [
        "blob chain",
        "base.toml lists the touched files",
        "applies without fuzz",
        "copies of our sources",
    ]
    names += ["kernel launches", "Python files"]
    if not fast:
        from aotools.patchset import check_compile

        names += check_compile.planned(base_)
    return names


def run(
    base_: Base,
    source: Path,
    *,
    wheel_spec: str | None,
    fast: bool,
    build: Path,
    own: Path = OWN_SOURCES,
    report: Report | None = None,
) -> Report:
    """Looks at every item, prints one line for each, and returns the findings."""
    report = report or Report()
    patches = base_.patches()
    report.add("series", _series(base_))
    for patch in patches:
        report.add(f"header of {patch.name}", header_problems(patch))
    report.add("blob chain", _chain(base_, patches))
    report.add("base.toml lists the touched files", _listed(base_, patches))
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        repo = Path(name) / "repo"
        repo.mkdir()
        try:
            applied = apply.build_repo(repo, base_, source, patches)
        except UserError as error:
            report.add("applies without fuzz", str(error))
            print(report.summary(), file=report.stream)
            return report
        moved = [f"{patch}: {line}" for patch, lines in applied.offsets.items() for line in lines]
        report.add("applies without fuzz", moved, note=f"{len(patches)} patches, no offsets")
        trees = [
            apply.export(repo, commit, Path(name) / f"tree-{index}")
            for index, commit in enumerate(applied.commits)
        ]
        report.add("copies of our sources", _copies(base_, patches, trees[-1], own))
        _launches(report, patches, trees[-1])
        report.add("Python files", _python_files(patches, trees[-1]))
        if not fast:
            from aotools.patchset import check_compile

            check_compile.run(report, base_, patches, trees, wheel_spec, build)
    print(report.summary(), file=report.stream)
    return report


def header_problems(patch: Patch) -> list[str]:
    """What is wrong with a patch as a file and with its fields."""
    problems = list(patch.problems)
    if patch.fields.get("Measured", "").lower().startswith("pending"):
        problems.append("Measured is still pending")
    return problems


def _series(base_: Base) -> list[str]:
    listed = set(base_.series())
    there = {path.name for path in base_.folder.glob("*.patch")}
    others = {path.name for path in base_.folder.iterdir()} - there - {"base.toml", "series"}
    problems = [f"{name} is not listed" for name in sorted(there - listed)]
    return problems + [
        f"{name} is neither a patch nor base.toml nor series" for name in sorted(others)
    ]


def _chain(base_: Base, patches: Sequence[Patch]) -> list[str]:
    """Every patch starts from the blob that the patch before it, or the base, left."""
    state: dict[str, str | None] = dict(base_.blobs)
    problems = []
    for patch in patches:
        for change in patch.changes:
            before = state.get(change.path)
            if before != change.old:
                problems.append(
                    f"{patch.name}: {change.path} starts from {change.old}, but it is {before} "
                    "there"
                )
            state[change.path] = change.new
    return problems


def _listed(base_: Base, patches: Sequence[Patch]) -> list[str]:
    wanted = set(base.touched(list(patches))) | set(base_.extra)
    known = set(base_.blobs)
    problems = [f"{path} is not in [blobs]" for path in sorted(wanted - known)]
    for path in sorted(known - wanted):
        if not path.startswith(f"{LINALG}/"):
            problems.append(f"{path} is in [blobs], but no patch touches it")
    if problems:
        problems.append("tools/patchset check --update-base writes the table anew")
    return problems


def _copies(base_: Base, patches: Sequence[Patch], tree: Path, own: Path) -> list[str]:
    """What the patches add to the linalg folder is ours byte for byte, and all of ours is added."""
    added = {
        change.path.removeprefix(f"{LINALG}/")
        for patch in patches
        for change in patch.changes
        if change.old is None and change.path.startswith(f"{LINALG}/")
    }
    ours = {
        path.relative_to(own).as_posix()
        for path in own.rglob("*")
        if path.is_file() and path.suffix in copies.SOURCE_SUFFIXES
    }
    left_out = ours - copies.for_aten(base_, own)
    problems = [
        f"{name} is added, but not in aten_overrides/csrc/linalg" for name in sorted(added - ours)
    ]
    problems += [
        f"{name} is added, though package_only says not" for name in sorted(added & left_out)
    ]
    for name in sorted(ours - added - left_out):
        problems.append(
            f"aten_overrides/csrc/linalg/{name} is added by no patch (or belongs into package_only)"
        )
    for name in sorted(added & ours):
        if (tree / LINALG / name).read_bytes() != (own / name).read_bytes():
            problems.append(f"{name} differs from aten_overrides/csrc/linalg/{name}")
    return problems


def _launches(report: Report, patches: Sequence[Patch], tree: Path) -> None:
    """Upstream's own checker: a kernel launch without a check after it."""
    script = tree / _LAUNCH_CHECKER
    if not script.is_file():
        report.skip("kernel launches", f"{script.name} is not among the files of the base")
        return
    checker = _load(script)
    problems = []
    files = sorted(
        {change.path for patch in patches for change in patch.changes if change.new is not None}
    )
    sources = [
        path for path in files if path.endswith(copies.SOURCE_SUFFIXES) and (tree / path).is_file()
    ]
    for path in sources:
        code = (tree / path).read_text(encoding="utf-8")
        count = checker.check_code_for_cuda_kernel_launches(code, path)
        if count:
            problems.append(f"{path}: {count} launches without C10_CUDA_KERNEL_LAUNCH_CHECK()")
    report.add("kernel launches", problems, note=f"{len(sources)} files, by upstream's checker")


def _load(script: Path) -> Any:
    spec = importlib.util.spec_from_file_location("upstream_launch_checker", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _python_files(patches: Sequence[Patch], tree: Path) -> list[str]:
    problems = []
    for path in sorted({change.path for patch in patches for change in patch.changes}):
        if path.endswith(".py") and (tree / path).is_file():
            try:
                ast.parse((tree / path).read_text(encoding="utf-8"), path)
            except SyntaxError as error:
                problems.append(f"{path}: {error}")
    return problems


def update_base(base_: Base, given: Path | None, *, dry_run: bool) -> int:
    """Writes the [blobs] table of base.toml anew: what the series touches, the linalg folder, and
    `extra`.
    """
    blobs = fetch.current_blobs(base_, [*base.touched(base_.patches()), *base_.extra], given)
    path = base_.folder / "base.toml"
    text = base.update_blobs(base_, blobs)
    gone, new = sorted(set(base_.blobs) - set(blobs)), sorted(set(blobs) - set(base_.blobs))
    other = sorted(
        name for name in set(blobs) & set(base_.blobs) if blobs[name] != base_.blobs[name]
    )
    for sign, names in (("-", gone), ("+", new), ("~", other)):
        for name in names:
            print(f"{sign} {name}")
    if not (gone or new or other):
        print(f"{path} is up to date")
    elif not dry_run:
        env.write_file(path, text)
        print(f"{path} written")
    return 0
