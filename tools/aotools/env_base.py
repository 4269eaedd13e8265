"""What every tool shares: the checkout's place, the cache folder, errors, locks, safe writes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from aotools.progress import size_text

ROOT = Path(__file__).resolve().parents[2]
STAMP = ".aten-overrides.json"
# Failures of the machine, not of the code: told as a UserError is.
_USERS_ERRNO = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


class UserError(Exception):
    """Something the user can act on: shown as one message without a traceback, exit code 2."""


def run_cli(main: Callable[[], int]) -> NoReturn:
    """Runs a command's `main` and exits with its code.

    2 after a UserError or where the machine forbids a write, 130 after Ctrl-C, 141 when nobody
    reads the output any more, 143 after SIGTERM.
    """

    def terminated(*_: object) -> None:
        sys.exit(143)  # as an exception, so that temporary folders are removed and children end

    signal.signal(signal.SIGTERM, terminated)
    try:
        code = main()
        sys.stdout.flush()  # here, where a closed pipe can still be answered
    except UserError as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more at its end
        code = 141
    except OSError as error:
        if error.errno not in _USERS_ERRNO:
            raise
        where = error.filename2 or error.filename or "a file"
        print(
            f"error: {where}: {error.strerror}. Nothing half written is left; give the folder room "
            "and write permission, or use others: ATEN_OVERRIDES_CACHE=FOLDER (the cache), "
            "TMPDIR=FOLDER (scratch files), a checkout of your own (build/)",
            file=sys.stderr,
        )
        code = 2
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is half installed, run again to go on", file=sys.stderr)
        code = 130
    sys.exit(code)


def cache_dir() -> Path:
    """The folder for downloads and wheel trees (it may not exist yet).

    $ATEN_OVERRIDES_CACHE, else aten-overrides under $XDG_CACHE_HOME (absolute paths only, as its
    standard says), else ~/.cache/aten-overrides. UserError when that user has no home folder.
    """
    own = os.environ.get("ATEN_OVERRIDES_CACHE")
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        if own:
            return Path(own).expanduser().absolute()
        return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "aten-overrides"
    except RuntimeError:  # no HOME, and no entry for this user id: common in containers
        raise UserError(
            f"user {os.getuid()} has no home folder to keep the cache in. Name a folder: "
            "ATEN_OVERRIDES_CACHE=/path, or set HOME"
        ) from None


@dataclass(frozen=True)
class Requirements:
    """A pinned requirements file and what its comments say about it."""

    path: Path
    download_bytes: float
    disk_bytes: float
    expect: str  # the torch version with its local part, "" when no torch is in it
    digest: str  # of the requirement lines alone: editing a comment must not cost a download


def known_versions() -> list[str]:
    """The torch versions that have a pinned requirements file, oldest first."""
    names = (p.stem.removeprefix("torch-") for p in (ROOT / "tools/requirements").glob("torch-*"))
    return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])


def requirements(name: str) -> Requirements:
    """Reads tools/requirements/<name>.txt ("tools", "torch-2.6.0"); UserError without such."""
    folder = ROOT / "tools/requirements"
    path = folder / f"{name}.txt"
    if not path.is_file() and (folder / "compat" / path.name).is_file():
        path = folder / "compat" / path.name  # pinned for tools/compat, not for the tests
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{name.replace('-', ' ')} is not among the versions this project pins: "
            f"{', '.join(known_versions())} (see tools/requirements)"
        ) from None
    size = re.search(r"^# size: download ([\d.]+) GB, disk ([\d.]+) GB$", text, re.M)
    expect = re.search(r"^# expect: torch (\S+)$", text, re.M)
    if size is None:
        raise UserError(f"{path} lacks its line '# size: download X GB, disk Y GB'")
    pins = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    return Requirements(
        path,
        float(size[1]) * 1e9,
        float(size[2]) * 1e9,
        expect[1] if expect else "",
        hashlib.sha256("\n".join(pins).encode()).hexdigest(),
    )


@contextmanager
def lock(path: Path, doing: str) -> Iterator[None]:
    """Holds the file lock `path`; says so when another process is `doing` the same and it waits."""
    make_folder(path.parent)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting: another process is {doing}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_folder(path: Path) -> None:
    """Makes a folder with its parents; UserError when that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder {path}: {error.strerror}. "
            "ATEN_OVERRIDES_CACHE=FOLDER puts the cache somewhere else"
        ) from None


def require_space(folder: Path, need_bytes: float, what: str) -> None:
    """UserError unless the file system of `folder` has `need_bytes` free for `what`."""
    free = shutil.disk_usage(folder).free
    if free < need_bytes:
        raise UserError(
            f"the disk is too full for {what}: {folder} has {size_text(free)} free, "
            f"{size_text(need_bytes)} are needed while it is being unpacked. "
            "Free some, or put the cache on another disk: ATEN_OVERRIDES_CACHE=FOLDER"
        )


def write_file(path: Path, text: str) -> None:
    """Writes a file whole or not at all (temporary name, then rename)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_stamp(folder: Path) -> dict[str, str] | None:
    """The stamp of a folder that the tools made: {} while unfinished, None when it has none."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return {}
    return stamp if isinstance(stamp, dict) else {}
