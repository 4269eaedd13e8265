"""The trees that `tools/patchset port --onto` takes: which there are, and how their files are read.

Only the files that a series touches are read. The names of all files are noted as well, so that the
report can say where a missing one may have gone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aotools import env
from aotools.env import UserError
from aotools.patchset import apt, git
from aotools.patchset.base import LINALG, Base, check_sha256
from aotools.patchset.base import AptSource as Apt
from aotools.patchset.tarball import members

# Debian's own packages of PyTorch, by suite, and the checksum of each tarball.
DEBIAN = {
    "bookworm": (
        Apt("pytorch", "1.13.1+dfsg-4", "bookworm", "pytorch_1.13.1+dfsg.orig.tar.xz"),
        "d0355588b8528566d477e6ebf1b4d9d036a6fd75711339f66b27472ce5879dc7",
    ),
    "trixie": (
        Apt("pytorch", "2.6.0+dfsg-7", "trixie", "pytorch_2.6.0+dfsg.orig.tar.xz"),
        "099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff",
    ),
}
FORMS = "FOLDER, FOLDER@COMMIT, debian:SUITE, or a tag or branch of the base's repository"


@dataclass(frozen=True)
class Target:
    """What a series is ported onto."""

    name: str
    contents: Mapping[str, bytes]  # of the paths asked for, those that are there
    listing: frozenset[str]  # every path of the tree
    stated: str = ""  # its version, where something better than version.txt says it

    @property
    def version(self) -> str:
        """As stated, else what version.txt says without a suffix such as a0: "2.7.0", or ""."""
        if self.stated:
            return self.stated
        found = re.match(r"\d+\.\d+(\.\d+)?", self.contents.get("version.txt", b"").decode())
        return found[0] if found else ""

    def elsewhere(self, path: str) -> list[str]:
        """Files of the same name in other folders."""
        name = PurePosixPath(path).name
        return sorted(p for p in self.listing if PurePosixPath(p).name == name and p != path)


def read(
    base: Base, ref: str, paths: Iterable[str], *, url: str | None = None, progress: bool = False
) -> Target:
    """Reads `paths`, the linalg folder and version.txt of the tree that `ref` names (FORMS).

    UserError for a tree that is not PyTorch's, or cannot be had.
    """
    wanted = {*paths, "version.txt"}
    suite = ref.removeprefix("debian:")
    folder, at, commit = ref.rpartition("@")
    if suite != ref:
        target = _from_debian(suite, wanted, progress)
    elif Path(ref).expanduser().is_dir():
        target = _from_folder(Path(ref).expanduser().absolute(), wanted)
    elif at and Path(folder).expanduser().is_dir():
        target = _from_commit(Path(folder).expanduser().absolute(), commit, wanted)
    elif "/" in ref and Path(ref).parent.is_dir():
        raise UserError(f"--onto {ref}: there is no such folder. It takes {FORMS}")
    else:
        target = _from_git(url or base.url, ref, wanted, progress)
    if not any(path.startswith("aten/src/ATen/") for path in target.listing):
        raise UserError(f"{target.name} is not a PyTorch source tree: it has no aten/src/ATen")
    return target


def _from_folder(folder: Path, wanted: set[str]) -> Target:
    # Only where a source file may have gone to; a checkout holds much else.
    tops = ("aten", "c10", "caffe2", "docs", "test", "torch")
    found = (p for top in tops for p in (folder / top).rglob("*") if p.is_file())
    listing = {p.relative_to(folder).as_posix() for p in found}
    listing |= {path for path in wanted if (folder / path).is_file()}
    contents = {path: (folder / path).read_bytes() for path in _chosen(listing, wanted)}
    return Target(str(folder), contents, frozenset(listing))


def _chosen(listing: Iterable[str], wanted: set[str]) -> list[str]:
    """What to read of a tree with these paths."""
    return sorted(p for p in listing if p in wanted or str(PurePosixPath(p).parent) == LINALG)


def _from_commit(folder: Path, commit: str, wanted: set[str]) -> Target:
    try:
        found = git.text(folder, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except git.GitError:
        raise UserError(f"{folder} has no commit {commit!r}, or is no git checkout") from None
    rows = git.text(folder, "ls-tree", "-r", "-z", "--name-only", "--full-tree", found).split("\0")
    listing = frozenset(rows)
    contents = {
        path: git.git(folder, "cat-file", "blob", f"{found}:{path}")
        for path in _chosen(listing, wanted)
    }
    return Target(f"{folder} at {commit} ({found[:12]})", contents, listing)


def _from_git(url: str, ref: str, wanted: set[str], progress: bool) -> Target:
    if ref.startswith("-") or not re.fullmatch(r"[\w./+-]+", ref):
        raise UserError(f"--onto {ref}: it takes {FORMS}")
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        clone = Path(name) / "clone"
        if progress:
            print(f"cloning {ref} of {url} (sparse, without history)", flush=True)
        options = ["clone", "--quiet", "--depth=1", "--filter=blob:none"]
        options += ["--no-checkout", "--template="]
        try:
            git.git(Path(name), *options, "--branch", ref, "--", url, str(clone), network=True)
            rows = git.text(clone, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
            there = _chosen(rows, wanted)
            git.sparse(clone, there)
            git.git(clone, "checkout", "--quiet", network=True)
        except git.GitError as error:
            raise UserError(
                f"--onto {ref} is no folder, and git cannot get a tag or branch of this name from "
                f"{url}: {error}"
            ) from None
        head = git.text(clone, "rev-parse", "HEAD")
        contents = {path: (clone / path).read_bytes() for path in there}
    return Target(f"{ref} of {url} ({head[:12]})", contents, frozenset(rows))


def debian_tarball(suite: str) -> Path:
    """Where the tarball of Debian's package is kept; UserError for a suite without a pin."""
    if suite not in DEBIAN:
        raise UserError(
            f"debian:{suite} has no pinned checksum here; there are: debian:"
            f"{', debian:'.join(DEBIAN)}. Unpack its source and name the folder"
        )
    if suite == "trixie":  # the base's own, which `fetch` keeps
        return env.cache_dir() / "source/v2.6.0/download" / DEBIAN[suite][0].tarball
    return env.cache_dir() / "source" / f"debian-{suite}" / DEBIAN[suite][0].tarball


def _from_debian(suite: str, wanted: set[str], progress: bool) -> Target:
    kept = debian_tarball(suite)
    package, sha256 = DEBIAN[suite]
    if not kept.is_file():
        env.make_folder(kept.parent)
        with env.lock(kept.parent / ".lock", f"fetching Debian {suite}'s PyTorch"):
            if not kept.is_file():
                apt.source_tarball(package, kept, sha256, kept.parent / "apt", progress=progress)
    check_sha256(kept, sha256)
    contents: dict[str, bytes] = {}
    listing = set()
    with members(kept, "reading", progress=progress) as found:
        for member in found:
            listing.add(member.path)
            if _chosen([member.path], wanted):
                contents[member.path] = member.open().read()
    name = f"Debian {suite}'s {package.package} {package.version}"
    return Target(name, contents, frozenset(listing), package.version.partition("+")[0])
