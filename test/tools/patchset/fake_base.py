"""A tiny base with two patches: a stand-in for PyTorch on which every error case takes
milliseconds.
"""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from aotools.patchset import base, git
from aotools.patchset.base import LINALG, Base, blob_id

FIELDS = """\
Description: Changes a number.
 .
 A second paragraph.
Bug: https://example.org/issues/1 https://example.org/issues/2
Origin: other, written for this test
Forwarded: no
Applied-Upstream: no
Last-Update: 2026-11-30
Removal-plan: Never.
Measured: none, a test
"""
AUTHOR = {
    "GIT_AUTHOR_NAME": "A Tester",
    "GIT_AUTHOR_EMAIL": "tester@example.org",
    "GIT_AUTHOR_DATE": "2026-11-30T12:00:00+0000",
}
BASE_FILES = {
    f"{LINALG}/Solver.cpp": "".join(f"int line{n} = {n};\n" for n in range(1, 31)),
    f"{LINALG}/Solver.h": "#pragma once\nint solver();\n",
    # Blanks at the end of a line and a form feed: what a whitespace fix would change.
    "docs/notes.rst": "Notes\n=====  \n\ttab  \nend\n",
}
NEW_HEADER = "#pragma once\nconstexpr int kNew = 1;  \n"


@dataclass
class FakeBase:
    """Where the parts of the fake lie; change files below `folder` to make it wrong."""

    root: Path  # as patches/
    source: Path  # the release's files
    own: Path  # as aten_overrides/csrc/linalg

    @property
    def folder(self) -> Path:
        """The base's folder."""
        return self.root / "v0.1"

    def load(self) -> Base:
        """Reads it as the tools do."""
        return base.load("v0.1", self.root)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replaces text in a file of the base's folder; the text must be there."""
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")


def write_files(folder: Path, files: dict[str, str]) -> Path:
    """Writes texts below `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def make(folder: Path) -> FakeBase:
    """Builds the fake in `folder`, its patches by git itself."""
    source = write_files(folder / "source", BASE_FILES)
    repo = folder / "repo"
    shutil.copytree(source, repo)
    git.init(repo)
    _commit(repo, "base")
    patches = [_first(repo), _second(repo)]
    root = folder / "patches"
    (root / "v0.1").mkdir(parents=True)
    for name, text in zip(("first-topic.patch", "second-topic.patch"), patches, strict=True):
        (root / "v0.1" / name).write_bytes(text)
    series = "# the order\n\nfirst-topic.patch\nsecond-topic.patch\n"
    (root / "v0.1/series").write_text(series, encoding="utf-8")
    (root / "v0.1/base.toml").write_text(_toml(), encoding="utf-8")
    return FakeBase(root, source, write_files(folder / "own", {"New.h": NEW_HEADER}))


def make_tarball(source: Path, to: Path) -> Path:
    """The source as a release's tarball, below one top folder."""
    with tarfile.open(to, "w:xz") as archive:
        archive.add(source, arcname="pytorch-0.1")
    return to


def make_origin(source: Path, to: Path) -> Path:
    """A repository with the source as tag v0.1, and with a later commit that has other files."""
    shutil.copytree(source, to)
    git.init(to)
    _commit(to, "release")
    git.git(to, "tag", "v0.1")
    write_files(to, {f"{LINALG}/Solver.cpp": "int changed = 1;\n"})
    _commit(to, "later")
    return to


def checkout(source: Path, to: Path) -> Path:
    """A user's checkout of the release, with a file of no interest."""
    shutil.copytree(source, to)
    git.init(to)
    write_files(to, {"README.md": "PyTorch\n"})
    _commit(to, "release")
    return to


def _commit(repo: Path, message: str) -> None:
    git.git(repo, "add", "--all")
    git.git(repo, "commit", "-q", "-m", message, extra=AUTHOR)


def _first(repo: Path) -> bytes:
    path = repo / LINALG / "Solver.cpp"
    text = path.read_text(encoding="utf-8").replace("line3 = 3", "line3 = 33")
    path.write_text(text, encoding="utf-8")
    return _format_patch(repo, "[CUDA] Change the third line")


def _second(repo: Path) -> bytes:
    path = repo / LINALG / "Solver.cpp"
    text = path.read_text(encoding="utf-8").replace("line25 = 25", "line25 = kNew")
    write_files(repo, {f"{LINALG}/Solver.cpp": text, f"{LINALG}/New.h": NEW_HEADER})
    notes = repo / "docs/notes.rst"
    notes.write_text(notes.read_text(encoding="utf-8") + "more  \n", encoding="utf-8")
    return _format_patch(repo, "Add a header")


def _format_patch(repo: Path, subject: str) -> bytes:
    _commit(repo, f"{subject}\n\n{FIELDS}")
    options = ["--zero-commit", "--full-index", "--no-signature", "--no-numbered", "--no-renames"]
    return git.git(repo, "format-patch", *options, "--keep-subject", "--stdout", "-1").replace(
        b"Subject: ", b"Subject: [PATCH] "
    )


def _toml() -> str:
    rows = [f'"{path}" = "{blob_id(text.encode())}"' for path, text in sorted(BASE_FILES.items())]
    head = (
        'version = "0.1"\ntag = "v0.1"\nurl = "file:///nowhere/pytorch"\n'
        'entries = ["lu_factor"]\n\n[blobs]\n'
    )
    return head + "\n".join(rows) + "\n"
