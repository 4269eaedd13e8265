"""The second stage of tools/quickstart, in .venv: source, series, library, proof, picture."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aotools import env, plot
from aotools.env import ROOT, UserError
from aotools.patchset import apply, base, fetch, kernels, relink, wheel
from aotools.progress import seconds_text, step
from aotools.quickstart import BASE, EXISTING, OUT, source_option
from aten_overrides._errors import UserError as PackageError
from aten_overrides._explain import grid
from aten_overrides.cli.explain import table_of

BATCHES = (1, 4, 16, 64, 256, 1024)
SIZES = (128, 256, 511, 512, 1024)


def run(options: argparse.Namespace) -> int:
    """Runs all steps; returns the exit code."""
    started = time.monotonic()
    base_ = base.load(BASE)
    patches = base_.patches()
    site = find_site(options.torch, venv=not options.no_venv)
    wheel_ = wheel.inspect(site)
    with step("source"):
        kind, given = source_option(options.source)
        source = fetch.source(base_, kind, given)
        print(f"   {len(base_.blobs)} files of PyTorch {base_.tag}, each with the expected blob id")
    with step("series"):
        chosen = kernels.buildable(patches, wheel_)
        patches = chosen.patches
        tree = apply.plain_tree(base_, source, patches, ROOT / "build" / base_.name / "trees")
        for patch in patches:
            print(f"   {patch.name}: {patch.subject}")
        print(f"   {len(patches)} patches applied without fuzz: {tree}")
        if note := chosen.note():
            print(f"   {note}")
    with step(f"library for torch {wheel_.full_version}"):
        out = ROOT / "build" / base_.name / f"torch-{wheel_.full_version}/patched"
        command = shlex.join(["tools/quickstart", *_arguments()])
        made = relink.relink(base_, tree, patches, wheel_, out, command=command, nvcc=chosen.nvcc)
        took = "built" if made.built else "up to date"
        print(f"   {made.library} ({made.library.stat().st_size / 1e6:.2f} MB), {took}")
        print(f"   {took} in {seconds_text(made.seconds)}")
    with step("loaded beside the wheel"):
        report = probe(site, made.library, measure=not options.no_measure)
        print(indent(entries_text(report["entries"])))
        print(f"   {untouched_text(site)}")
        if report["back"]:
            print("   after restore() all 15 entries are the wheel's again")
    magma = made.facts["magma"]["mode"] == "wheel"
    with step("which back end lu_factor takes, before > after"):
        known = rule_known(wheel_.version)
        print(indent(choices_text(magma=magma, before=known)))
    with step("the step from n = 511 to n = 512"):
        print(indent(picture(report, OUT / "cliff.png")))
    print(f"\nDone in {seconds_text(time.monotonic() - started)}. To use the library in a program:")
    print(f"   import torch, ctypes; ctypes.CDLL({str(made.library)!r})")
    return 0


def _arguments() -> list[str]:
    return [argument for argument in sys.argv[1:] if argument != "--planned"]


def find_site(torch: str, *, venv: bool) -> Path:
    """The folder that holds torch/: the user's own, or the pinned wheel's tree.

    UserError when the user's Python has no torch, or is of another version than this one.
    """
    if torch == EXISTING:
        own = {} if venv else {"PYTHON": sys.executable}
        with changed_environment(**own):
            site = wheel.locate(EXISTING)
        check_python_version(site)
        return site
    tree = env.wheel_tree(torch)
    if venv and torch == BASE.removeprefix("v"):
        env.link_torch(tree)
    return tree


@contextmanager
def changed_environment(**values: str) -> Iterator[None]:
    """Sets environment variables for the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def check_python_version(site: Path) -> None:
    """UserError when the torch in `site` is built for another Python than the running one."""
    names = [path.name for path in (site / "torch").glob("_C.*.so")]
    mine = f"_C.cpython-{env.python_name().replace('.', '')}-"
    if names and not any(name.startswith(mine) for name in names):
        raise UserError(
            f"the torch in {site} is for another Python ({names[0]}) than {env.python_name()}, "
            f"with which {sys.prefix} was made. Remove .venv and run again with "
            "PYTHON=/path/to/that/python"
        )


def indent(text: str) -> str:
    """`text`, each line three blanks further right, as everything within a step."""
    return "\n".join(f"   {line}" for line in text.splitlines())


# --- proof ---


def probe(site: Path, library: Path, *, measure: bool) -> dict[str, Any]:
    """Loads the library into a process of its own with that torch; what it saw and measured."""
    with tempfile.TemporaryDirectory(prefix="aten-overrides-") as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, "-m", "aotools.quickstart_child", str(library), str(out)]
        if measure:
            command.append("--measure")
        done = subprocess.run(command, env=env.tree_environment(site), check=False)
        if not out.is_file():
            raise UserError(
                f"the process that loaded {library} ended with exit code {done.returncode} "
                "before it could report; its output is above"
            )
        report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if "error" in report:
        raise UserError(report["error"])
    return report


def entries_text(entries: Sequence[Mapping[str, str]]) -> str:
    """Whose function each entry calls, and the files in which dladdr finds them."""
    lines = [f"{row['name']:22} {row['owner']}" for row in entries]
    for owner in dict.fromkeys(row["owner"] for row in entries):
        of_owner = [row for row in entries if row["owner"] == owner]
        files = ", ".join(sorted({row["file"] for row in of_owner}))
        lines.append(f"{len(of_owner)} of {len(entries)} {owner}, in {files}")
    return "\n".join(lines)


def untouched_text(site: Path) -> str:
    """Whether the wheel's own library is still the file that its RECORD describes."""
    path = f"torch/lib/{wheel.LINALG_LIBRARY}"
    state = wheel_file_state(site, path)
    if state is None:
        return f"{site / path}: the installation states no checksum for it"
    if not state:
        raise UserError(
            f"{site / path} is not the file that torch's own RECORD describes: it was changed "
            "before. Install torch anew"
        )
    return f"the wheel's {path} is untouched: its sha256 is the one in the wheel's RECORD"


def wheel_file_state(site: Path, path: str) -> bool | None:
    """Whether a file of the torch in `site` has RECORD's sha256; None when none is stated."""
    for record in sorted(site.glob("torch-*.dist-info/RECORD")):
        for line in record.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{path},sha256="):
                stated = line.split(",")[1].removeprefix("sha256=")
                digest = hashlib.sha256((site / path).read_bytes()).digest()
                return base64.urlsafe_b64encode(digest).decode().rstrip("=") == stated
    return None


# --- choices ---


def rule_known(version: str) -> bool:
    """Whether torch `version` ("2.6.0") chooses by the stock rule known here; 2.13 has another."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return (2, 6) <= (major, minor) <= (2, 12)


def choices_text(*, magma: bool, before: bool = True) -> str:
    """Which back end lu_factor takes at each batch and n: stock, and by the series' thresholds.

    Without `before` only the latter: this torch has a rule that is not known here.
    """
    lines = []
    try:
        for preference in ("cusolver", "default"):
            what = ("lu_factor", "float32", BATCHES, SIZES)
            cells = grid(*what, prefer=preference, stock=magma)
            if not before:
                cells = tuple(dataclasses.replace(cell, before=cell.after) for cell in cells)
            lines += [f"float32, square, preference {preference!r}", table_of(cells)]
    except PackageError as error:
        raise UserError(str(error)) from None
    if not before:
        lines.append("(after only: this torch chooses by a rule that is not known here)")
    lines.append("thresholds measured on an NVIDIA H200; times of each: aten_overrides explain")
    return "\n".join(lines)


# --- picture ---


def picture(report: Mapping[str, Any], path: Path) -> str:
    """Draws the cliff, as measured just now or else from the newest record; says what was drawn."""
    if report.get("points"):
        cliff = plot.read_cliff(report["meta"], report["points"])
        origin = f"measured now on {report['meta']['gpu']}"
    else:
        record = plot.newest_record(ROOT / "test/gpu/records", "patchset")
        if record is None:
            return "no GPU here, and no record in test/gpu/records to draw from; nothing drawn"
        data = json.loads(record.read_text(encoding="utf-8"))
        cliff = plot.read_cliff(data["meta"], data["points"])
        origin = f"from {record.relative_to(ROOT)}, since this machine has no GPU"
        if report.get("gpu"):
            origin = f"from {record.relative_to(ROOT)} (--no-measure)"
    env.make_folder(path.parent)
    plot.draw(cliff, path)
    return f"{origin}\n{plot.summary(cliff)}\n{path}"
