"""`tools/gpu-test pack`: one folder with all that `tools/gpu-test patchset` needs and git does not
hold.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path

from aotools.env import ROOT, UserError, make_folder, write_file
from aotools.gputest import libraries

_FILES = ("libtorch_cuda_linalg_patched.so", "build-facts.json")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the suite's options."""
    parser.add_argument(
        "--out", type=Path, default=libraries.DEFAULT, help="the folder (build/gpu-test)"
    )
    parser.add_argument(
        "--wheel", default="2.11.0", help="the torch version of the GPU machine (2.11.0)"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, help="take libraries built before from SOURCE/<name>/"
    )
    parser.add_argument(
        "--plain-tests", type=Path, help="test_linalg.py of the unpatched 2.6.0 source"
    )
    parser.add_argument("--patched-tests", type=Path, help="the same with the series applied")


def relink_command(name: str, wheel: str, out: Path) -> list[str]:
    """The `tools/patchset relink` call that builds the library `name`."""
    command = [str(ROOT / "tools/patchset"), "relink", "--wheel", wheel, "--out", str(out)]
    command += ["--magma", "off" if name.endswith("nomagma") else "wheel"]
    return command + (["--patches", "none"] if name.startswith("unpatched") else [])


def run(arguments: argparse.Namespace) -> int:
    """Builds or copies the four libraries and upstream's tests; prints the folder's size."""
    out = arguments.out.absolute()
    make_folder(out)
    for name in libraries.NAMES:
        source = arguments.source.absolute() / name if arguments.source else out / ".relink" / name
        if not arguments.source:
            command = relink_command(name, arguments.wheel, source)
            if subprocess.run(command).returncode != 0:
                raise UserError(f"building {name} failed; the command was: {' '.join(command)}")
        make_folder(out / name)
        for file in _FILES:
            copy(source / file, out / name / file)
    tests = {
        "test_linalg.py": arguments.plain_tests,
        "test_linalg_patched.py": arguments.patched_tests,
    }
    for file, path in tests.items():
        if path:
            make_folder(out / "upstream")
            copy(path, out / "upstream" / file)
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    noted = {
        "commit": head or None,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "wheel": arguments.wheel,
    }
    files = sorted(
        path for path in out.rglob("*") if path.is_file() and ".relink" not in path.parts
    )
    noted["files"] = {
        str(path.relative_to(out)): libraries.sha256(path)
        for path in files
        if path.name != libraries.MANIFEST
    }
    write_file(out / libraries.MANIFEST, json.dumps(noted, indent=1) + "\n")
    size = sum(path.stat().st_size for path in files) / 1e6
    print(
        f"{out}: {len(files)} files, {size:.1f} MB"
        + (f" (build folders in {out / '.relink'} need not travel)" if not arguments.source else "")
    )
    if not (out / "upstream/test_linalg.py").is_file():
        print(
            "upstream's test_linalg.py is not in it, so part upstream cannot run; "
            "--plain-tests and --patched-tests name it"
        )
    return 0


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
