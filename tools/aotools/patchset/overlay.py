"""The folder that comes first on the include path: the work tree's linalg sources and patched
headers.

Everything else is the wheel's own. A header that the series patches is copied whole when the wheel
has it exactly as the base has it; a newer wheel's own copy is patched instead, so that its other
declarations stay as that wheel has them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import git
from aotools.patchset.base import LINALG, Base, Patch, blob_id
from aotools.patchset.wheel import Wheel

_HEADER = (".h", ".cuh", ".hpp")


@dataclass(frozen=True)
class Overlay:
    """An include folder and how each header in it that is not a linalg file came about."""

    folder: Path
    headers: dict[str, str]

    @property
    def linalg(self) -> Path:
        """The linalg sources."""
        return self.folder / "ATen/native/cuda/linalg"

    def sources(self) -> list[Path]:
        """The host units of the linalg library, sorted."""
        return sorted(self.linalg.rglob("*.cpp"))

    def kernels(self) -> list[Path]:
        """The units for nvcc, sorted."""
        return sorted(self.linalg.rglob("*.cu"))


def include_name(path: str) -> str | None:
    """How a repository path is written in an #include, None when it is no header that others
    include.
    """
    if not path.endswith(_HEADER):
        return None
    for prefix in ("aten/src/", ""):
        name = path.removeprefix(prefix)
        if (prefix == "" or name != path) and name.split("/")[0] in (
            "ATen",
            "c10",
            "torch",
            "caffe2",
        ):
            return name
    return None


def build(
    folder: Path, tree: Path, base: Base, patches: Sequence[Patch], wheel: Wheel, *, magma: bool
) -> Overlay:
    """Brings `folder` to the state that `tree`, with `patches` applied, needs on `wheel`."""
    contents: dict[str, bytes] = {}
    for path in sorted((tree / LINALG).rglob("*")):
        if path.is_file():
            below = path.relative_to(tree / LINALG).as_posix()
            contents[f"ATen/native/cuda/linalg/{below}"] = path.read_bytes()
    headers: dict[str, str] = {}
    changed = {change.path for patch in patches for change in patch.changes}
    for path_name in sorted(changed):
        name = include_name(path_name)
        if name is None or path_name.startswith(f"{LINALG}/"):
            continue
        contents_of, how = _header(path_name, name, tree, base, patches, wheel)
        headers[name] = how
        if contents_of is not None:
            contents[name] = contents_of
    if not magma:
        name = "ATen/cuda/CUDAConfig.h"
        text = (wheel.include / name).read_text(encoding="utf-8")
        text, count = re.subn(
            r"^#define AT_MAGMA_ENABLED\(\) \d$", "#define AT_MAGMA_ENABLED() 0", text, flags=re.M
        )
        if count != 1:
            raise UserError(
                f"{wheel.include / name} has no line '#define AT_MAGMA_ENABLED() 1' to turn off"
            )
        contents[name] = text.encode()
        headers[name] = "the wheel's with MAGMA off"
    sync(folder, contents)
    return Overlay(folder, headers)


def sync(folder: Path, contents: dict[str, bytes]) -> None:
    """Makes `folder` hold exactly `contents` (relative name to bytes); unchanged files are left as
    they are.
    """
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in contents:
            path.unlink()
    for name, data in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            env.make_folder(path.parent)
            temporary = path.with_name(f".{path.name}.new")
            temporary.write_bytes(data)
            temporary.replace(path)


def _header(
    path: str, name: str, tree: Path, base: Base, patches: Sequence[Patch], wheel: Wheel
) -> tuple[bytes | None, str]:
    patched = tree / path
    own = wheel.include / name
    if not patched.is_file() and own.is_file():
        return None, "left as the wheel has it: the tree has none"
    if not own.is_file():
        return (patched.read_bytes(), "new") if patched.is_file() else (None, "removed")
    if blob_id(own.read_bytes()) == base.blobs.get(path):
        return patched.read_bytes(), "patched"
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / path
        copy.parent.mkdir(parents=True)
        shutil.copyfile(own, copy)
        for patch in patches:
            if any(change.path == path for change in patch.changes):
                try:
                    git.git(Path(temporary), "apply", f"--include={path}", str(patch.path))
                except git.GitError:
                    return None, (
                        f"the wheel's own, which differs from the base, without {patch.name}: "
                        "what is compiled into libtorch stays the wheel's in any case"
                    )
        return copy.read_bytes(), "the wheel's, patched"
