"""`tools/gpu-test pack`: one folder with all that `tools/gpu-test patchset` and `overrides` need
and git does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from aotools.env import ROOT, UserError, make_folder, tree_environment, wheel_tree, write_file
from aotools.gputest import libraries, overrides_library

CACHE = "ATEN_OVERRIDES_CACHE"
SUITES = ("patchset", "overrides")
_FILES = ("libtorch_cuda_linalg_patched.so", "build-facts.json")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the suite's options."""
    parser.add_argument("--out", type=Path, default=libraries.DEFAULT, help="build/gpu-test")
    parser.add_argument("--wheel", default="2.11.0", help="torch of the GPU machine (2.11.0)")
    parser.add_argument(
        "--from", dest="source", type=Path, help="take libraries built before from FROM/<name>/"
    )
    parser.add_argument(
        "--only", choices=SUITES, help="what this suite needs, and leave the rest as it is"
    )
    parser.add_argument(
        "--overrides",
        type=Path,
        metavar="CACHE",
        help="take the overrides' library from there, where `aten-overrides build` made it with "
        "ATEN_OVERRIDES_CACHE=CACHE",
    )
    parser.add_argument("--plain-tests", type=Path, help="test_linalg.py without the series")
    parser.add_argument("--patched-tests", type=Path, help="test_linalg.py with the series")


def relink_command(name: str, wheel: str, out: Path) -> list[str]:
    """The `tools/patchset relink` call that builds the library `name`."""
    command = [str(ROOT / "tools/patchset"), "relink", "--wheel", wheel, "--out", str(out)]
    command += ["--magma", "off" if name.endswith("nomagma") else "wheel"]
    return command + (["--patches", "none"] if name.startswith("unpatched") else [])


def apply_command(patched: bool, to: Path) -> list[str]:
    """The `tools/patchset apply` call that makes a tree to take test_linalg.py from."""
    command = [str(ROOT / "tools/patchset"), "apply", "--to", str(to)]
    return command if patched else [*command, "--upto", "none"]


def call(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Runs a command of this project; UserError when it fails."""
    if subprocess.run(command, env=environment, stdout=sys.stderr).returncode != 0:
        raise UserError(f"this failed: {' '.join(command)}")


def run(arguments: argparse.Namespace) -> int:
    """Builds or copies the libraries and upstream's tests; prints the folder's size."""
    out = arguments.out.absolute()
    work = out.with_name(f"{out.name}-work")  # where things are built
    make_folder(out)
    wanted = (arguments.only,) if arguments.only else SUITES
    tests = [("plain", arguments.plain_tests)]
    if "patchset" in wanted:
        pack_libraries(arguments, work, out)
        tests.append(("patched", arguments.patched_tests))
    if "overrides" in wanted:
        pack_overrides(arguments, work, out)
    make_folder(out / "upstream")
    for name, given in tests:
        source = given
        if source is None:
            call(apply_command(name == "patched", work / f"source-{name}"))
            source = work / f"source-{name}" / "test" / "test_linalg.py"
        target = "test_linalg.py" if name == "plain" else "test_linalg_patched.py"
        copy(source, out / "upstream" / target)
    size = note(out, arguments.wheel)
    print(f"{out}: {size / 1e6:.1f} MB to carry")
    return 0


def pack_libraries(arguments: argparse.Namespace, work: Path, out: Path) -> None:
    """The four libraries of the suite `patchset`, into OUT/<name>."""
    for name in libraries.NAMES:
        source = arguments.source.absolute() / name if arguments.source else work / name
        if not arguments.source:
            call(relink_command(name, arguments.wheel, source))
        make_folder(out / name)
        for file in _FILES:
            copy(source / file, out / name / file)


def pack_overrides(arguments: argparse.Namespace, work: Path, out: Path) -> None:
    """The package's gpu library for the wheel and its select library, into OUT/overrides."""
    name = overrides_library.NAME
    given = arguments.overrides or (arguments.source / name if arguments.source else None)
    cache = given.absolute() if given else work / name
    environment = {**os.environ, CACHE: str(cache)}
    if not given:
        tree = {**tree_environment(wheel_tree(arguments.wheel)), CACHE: str(cache)}
        call([sys.executable, "-m", "aten_overrides", "build"], tree)
    # Choosing makes the select library of the present sources.
    explain = ["explain", "lu_factor", "--shape", "2,8,8", "--gpu", "h200", "--json"]
    call([sys.executable, "-m", "aten_overrides", *explain], environment)
    library = overrides_library.find(cache, wheel_version(cache, arguments.wheel)).path
    selects = sorted(cache.glob(f"**/{overrides_library.SELECT}"), key=os.path.getmtime)
    if not selects:
        raise UserError(f"{cache} holds no {overrides_library.SELECT}")
    target = out / name / "gpu" / library.parent.name
    make_folder(target)
    for old in (out / name / "gpu").glob("*"):  # of another torch
        if old != target and (old / overrides_library.GPU).is_file():
            shutil.rmtree(old)
    copy(library.with_suffix(".json"), target / library.with_suffix(".json").name)
    copy(library, target / library.name)
    copy(selects[-1], out / name / overrides_library.SELECT)


def wheel_version(cache: Path, wheel: str) -> str:
    """The full version ("2.11.0+cu130") for which a library of the wheel's version was built."""
    for path in sorted(cache.glob(f"gpu/torch-{wheel}*")):
        return path.name.removeprefix("torch-").partition("-")[0]
    return wheel


def note(out: Path, wheel: str) -> int:
    """Writes the manifest; returns the bytes of the files that have to travel."""
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    files = [path for path in files if path.name != libraries.MANIFEST]
    noted = {
        "commit": head or None,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "wheel": wheel,
        "files": {str(path.relative_to(out)): libraries.sha256(path) for path in files},
    }
    write_file(out / libraries.MANIFEST, json.dumps(noted, indent=1) + "\n")
    return sum(path.stat().st_size for path in files)


def copy(source: Path, target: Path) -> None:
    """Copies a file whole or not at all; UserError when it is not there."""
    temporary = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, temporary)
        temporary.replace(target)
    except OSError as error:
        raise UserError(f"cannot copy {source} to {target}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
