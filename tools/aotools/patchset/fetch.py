"""Brings the files of a base into the cache, from Debian's archive, a git server, a tarball or a
folder.

Only the files in base.toml's [blobs] are kept, each verified by its git blob id, so it does not
matter which of the sources they came from. The cache is cache/source/<base>/tree-<key of the list>;
a tree is complete or not there.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import apt, git
from aotools.patchset.base import LINALG, Base, blob_id, check_sha256
from aotools.patchset.tarball import members

SOURCES = ("apt", "git", "tarball", "dir")
_NEED_BYTES = 120e6  # tarball, apt's lists and the unpacked files


def folder(base: Base) -> Path:
    """Where everything of this base is cached."""
    return env.cache_dir() / "source" / base.name


def tree_path(base: Base) -> Path:
    """Where the files are, or would be; another list of files has another name."""
    listed = "".join(f"{path} {blob}\n" for path, blob in sorted(base.blobs.items()))
    return folder(base) / f"tree-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"


def ready(base: Base) -> bool:
    """Whether the files are there, all of them as base.toml has them."""
    return not wrong_files(tree_path(base), base.blobs)


def wrong_files(tree: Path, blobs: Mapping[str, str]) -> list[str]:
    """What in `tree` is not as listed, as "path: missing" or "path: is <blob id>"."""
    wrong = []
    for path, blob in blobs.items():
        try:
            found = blob_id((tree / path).read_bytes())
        except OSError:
            wrong.append(f"{path}: missing")
            continue
        if found != blob:
            wrong.append(f"{path}: is {found}, not {blob}")
    return wrong


def source(
    base: Base,
    kind: str | None = None,
    given: Path | None = None,
    *,
    url: str | None = None,
    sha256: str | None = None,
    progress: bool = True,
) -> Path:
    """The folder with the base's files, fetched when they are not cached.

    `kind` is one of SOURCES with `given` for "tarball" and "dir"; without it the tarball in the
    cache, apt and git are tried in this order. UserError with the reason of each source that
    failed; the cache is then as before.
    """
    tree = tree_path(base)
    if kind is None and ready(base):
        return tree
    env.make_folder(folder(base))
    with env.lock(folder(base) / ".lock", f"fetching the source of {base.name}"):
        if kind is None and ready(base):
            return tree
        env.require_space(folder(base), _NEED_BYTES, f"the source of {base.name}")
        steps = _steps(base, kind, given, url, sha256, progress)
        reasons = []
        for name, step in steps.items():
            try:
                _install(base, step)
                return tree
            except UserError as error:
                if kind is not None:
                    raise
                reasons.append(f"{name}: {error}")
            except OSError as error:
                raise _disk_error(error, folder(base)) from None
    raise UserError(
        f"no source of PyTorch {base.version} could be had.\n  "
        + "\n  ".join(reasons)
        + "\nWith a copy of the release at hand: tools/patchset fetch --source dir FOLDER, or "
        "--source tarball FILE"
    )


def _steps(
    base: Base,
    kind: str | None,
    given: Path | None,
    url: str | None,
    sha256: str | None,
    progress: bool,
) -> dict[str, Callable[[Path], None]]:
    if kind in ("tarball", "dir") and given is None:
        raise UserError(
            f"--source {kind} needs a {'file' if kind == 'tarball' else 'folder'} after it"
        )
    if given is not None:
        given = given.expanduser().absolute()
    paths = sorted(base.blobs)
    kept = downloaded(base)
    all_steps: dict[str, Callable[[Path], None]] = {}
    if kind == "tarball" and given is not None:
        all_steps["tarball"] = lambda to: unpack(
            given, paths, to, sha256 or base.tarball_sha256, progress
        )
    elif kind == "dir" and given is not None:
        all_steps["dir"] = lambda to: _copy(given, paths, to, base)
    else:
        if kind is None and _sound(kept, base):
            all_steps["tarball in the cache"] = lambda to: unpack(
                kept, paths, to, base.tarball_sha256, progress
            )
        if kind in (None, "apt"):
            all_steps["apt"] = lambda to: _from_apt(base, paths, to, progress)
        if kind in (None, "git"):
            all_steps["git"] = lambda to: _from_git(url or base.url, base.tag, paths, to, progress)
    if not all_steps:
        raise UserError(f"there is no source {kind!r}. There are: {', '.join(SOURCES)}")
    return all_steps


def _install(base: Base, step: Callable[[Path], None]) -> None:
    """Runs one source into a temporary folder, verifies it, and puts it in place."""
    target = tree_path(base)
    for left in folder(base).glob(".tmp-*"):  # of a run that was killed: the lock is ours
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder(base)) as name:
        fresh = Path(name) / "tree"
        fresh.mkdir()
        step(fresh)
        wrong = wrong_files(fresh, base.blobs)
        if wrong:
            raise UserError(
                f"this is not PyTorch {base.tag}: {len(wrong)} of {len(base.blobs)} files differ "
                "from "
                f"{base.folder / 'base.toml'}, the first is\n  {wrong[0]}"
            )
        if target.exists():  # damaged since
            target.rename(Path(name) / "old")
        fresh.rename(target)


def downloaded(base: Base) -> Path:
    """Where apt's tarball is kept, so that a longer list of files costs no second download."""
    return folder(base) / "download" / (base.apt.tarball if base.apt else "source.tar")


def _sound(kept: Path, base: Base) -> bool:
    """Whether the cache's tarball is there and whole; a damaged one is downloaded again."""
    try:
        check_sha256(kept, base.tarball_sha256)
    except (OSError, UserError):
        return False
    return True


def current_blobs(base: Base, paths: Iterable[str], given: Path | None = None) -> dict[str, str]:
    """The blob ids that `paths` and the linalg folder have in the release: what base.toml should
    list.

    Read from `given`, a source tree, or else from the pinned tarball, which is fetched when it is
    not cached.
    """
    if given is not None:
        linalg = (
            f"{LINALG}/{entry.name}" for entry in (given / LINALG).iterdir() if entry.is_file()
        )
        return _blobs(given, {*paths, *linalg})
    kept = downloaded(base)
    if not _sound(kept, base):
        if base.apt is None:
            raise UserError(
                f"{base.folder / 'base.toml'} names no Debian package; name a tree: --source dir "
                "FOLDER"
            )
        apt.source_tarball(base.apt, kept, base.tarball_sha256, folder(base) / "apt")
    with tempfile.TemporaryDirectory() as name:
        unpack(kept, paths, Path(name), base.tarball_sha256, True, below=LINALG)
        files = [path for path in Path(name).rglob("*") if path.is_file()]
        return _blobs(Path(name), {path.relative_to(name).as_posix() for path in files})


def _blobs(tree: Path, paths: Iterable[str]) -> dict[str, str]:
    try:
        return {path: blob_id((tree / path).read_bytes()) for path in paths}
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from None


# --- the sources
# -----------------------------------------------------------------------------------------------


def _from_apt(base: Base, paths: list[str], to: Path, progress: bool) -> None:
    if base.apt is None:
        raise UserError(f"{base.folder / 'base.toml'} names no Debian package")
    kept = downloaded(base)
    if not _sound(kept, base):
        apt.source_tarball(
            base.apt, kept, base.tarball_sha256, folder(base) / "apt", progress=progress
        )
    unpack(kept, paths, to, base.tarball_sha256, progress)


def unpack(
    tarball: Path,
    paths: Iterable[str],
    to: Path,
    sha256: str,
    progress: bool,
    below: str | None = None,
) -> None:
    """Unpacks `paths` (below the tarball's one top folder) into `to`, after checking the tarball's
    checksum.

    With `below` everything in that folder too.
    """
    if not tarball.is_file():
        raise UserError(f"{tarball} is not a file")
    check_sha256(tarball, sha256)
    wanted = set(paths)
    with members(tarball, "unpacking", progress=progress) as found:
        for member in found:
            inside = below is not None and member.path.startswith(f"{below}/")
            if member.path not in wanted and not inside:
                continue
            place = to / member.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as out:
                shutil.copyfileobj(member.open(), out)
            wanted.discard(member.path)
            if not wanted and below is None:
                break
    if wanted:
        raise UserError(
            f"{tarball} lacks {len(wanted)} files that are needed, such as {min(wanted)}"
        )


def _copy(given: Path, paths: list[str], to: Path, base: Base) -> None:
    if not (given / LINALG).is_dir():
        raise UserError(f"{given} is not a PyTorch source tree: it has no {LINALG}")
    for path in paths:
        if (given / path).is_file():
            place = to / path
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(given / path, place)


def _from_git(url: str, tag: str, paths: list[str], to: Path, progress: bool) -> None:
    """A clone of the tag without history, and without the files that are not in `paths`."""
    with tempfile.TemporaryDirectory(prefix="clone-", dir=to.parent) as name:
        clone = Path(name) / "clone"
        if progress:
            print(f"cloning {tag} of {url} (sparse, without history)", flush=True)
        arguments = [
            "clone",
            "--quiet",
            "--depth=1",
            "--filter=blob:none",
            "--no-checkout",
            "--template=",
        ]
        try:
            git.git(to.parent, *arguments, "--branch", tag, "--", url, str(clone), network=True)
            git.sparse(clone, paths)
            git.git(clone, "checkout", "--quiet", f"refs/tags/{tag}", network=True)
        except git.GitError as error:
            raise UserError(f"git cannot get {tag} from {url}: {error}") from None
        for path in paths:
            if (clone / path).is_file():
                place = to / path
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(clone / path, place)


def _disk_error(error: OSError, where: Path) -> UserError:
    return UserError(
        f"writing below {where} failed: {error.strerror}. Nothing half fetched is left; free some "
        "space or put the "
        "cache on another disk: ATEN_OVERRIDES_CACHE=FOLDER"
    )
