"""Reads a release's tarball member by member, with a bar, its damages in plain words."""

from __future__ import annotations

import contextlib
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from aotools.env import UserError
from aotools.progress import Bar


class Member:
    """A regular file of the tarball: its path below the one top folder, and its content."""

    def __init__(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        self._archive, self._info = archive, info
        self.path = "/".join(PurePosixPath(info.name).parts[1:])

    def open(self) -> IO[bytes]:
        """The content, to be read before the next member is asked for."""
        content = self._archive.extractfile(self._info)
        assert content is not None  # it is a regular file
        return content


@contextlib.contextmanager
def members(tarball: Path, doing: str, *, progress: bool) -> Iterator[Iterator[Member]]:
    """The regular files of `tarball`, in its order; `doing` labels the bar ("unpacking").

    UserError, also from what reads the members, when the tarball is damaged.
    """
    bar = Bar(f"{doing} {tarball.name}", tarball.stat().st_size)

    def each(archive: tarfile.TarFile, raw: IO[bytes]) -> Iterator[Member]:
        for info in archive:
            if progress:
                bar.update(raw.tell())
            if info.isreg():
                yield Member(archive, info)

    try:
        with (
            tarball.open("rb") as raw,
            bar if progress else contextlib.nullcontext(),
            tarfile.open(fileobj=raw, mode="r:*") as archive,
        ):
            yield each(archive, raw)
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{tarball} cannot be unpacked: {reason}") from None
    except OSError as error:
        if error.errno is not None:  # else gzip's or bz2's words for damaged data
            raise
        raise UserError(f"{tarball} cannot be unpacked: {error}") from None
