"""Reads what matters of an ELF shared library, without readelf: names, paths, symbols, versions
needed.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotools.env import UserError

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT = {
    "NEEDED": 1,
    "HASH": 4,
    "STRTAB": 5,
    "SYMTAB": 6,
    "SONAME": 14,
    "RPATH": 15,
    "RUNPATH": 29,
    "GNU_HASH": 0x6FFFFEF5,
    "VERNEED": 0x6FFFFFFE,
    "VERNEEDNUM": 0x6FFFFFFF,
}


@dataclass(frozen=True)
class Elf:
    """The dynamic section of a library and its dynamic symbols."""

    path: Path
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    defined: frozenset[str]
    undefined: frozenset[str]
    versions: frozenset[str]  # needed of other libraries: "GLIBC_2.34", "GLIBCXX_3.4.30"

    def newest(self, family: str) -> str:
        """The highest version needed of a family ("GLIBC", "GLIBCXX", "CXXABI"), "" if none."""
        prefix = f"{family}_"
        found = [v.removeprefix(prefix) for v in self.versions if re.match(rf"{prefix}\d", v)]
        return max(found, key=lambda v: [int(part) for part in v.split(".")], default="")


def read(path: Path) -> Elf:
    """Reads a 64-bit little-endian shared library; UserError when the file is not one."""
    try:
        with (
            path.open("rb") as handle,
            mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _Reader(path, data).elf()
    except (OSError, ValueError, struct.error, IndexError, KeyError) as error:
        raise UserError(f"{path} is not a shared library that can be read: {error}") from None


class _Reader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        offset, size, count = struct.unpack_from("<32xQ14xHH", data)
        self.loads: list[tuple[int, int, int]] = []
        self.dynamic: list[tuple[int, int]] = []
        for index in range(count):
            kind, _, at, address, _, length = struct.unpack_from(
                "<IIQQQQ", data, offset + index * size
            )
            if kind == _PT_LOAD:
                self.loads.append((address, length, at))
            elif kind == _PT_DYNAMIC:
                for tag, value in struct.iter_unpack("<QQ", data[at : at + length // 16 * 16]):
                    if tag == 0:
                        break
                    self.dynamic.append((tag, value))
        if not self.dynamic:
            raise ValueError("it has no dynamic section")

    def place(self, address: int) -> int:
        for start, length, at in self.loads:
            if start <= address < start + length:
                return address - start + at
        raise ValueError(f"address {address:#x} is in no segment")

    def values(self, name: str) -> list[int]:
        return [value for tag, value in self.dynamic if tag == _DT[name]]

    def string(self, index: int) -> str:
        start = self.strings + index
        return self.data[start : self.data.find(b"\0", start)].decode()

    def symbol_count(self) -> int:
        if tables := self.values("HASH"):
            return int(struct.unpack_from("<4xI", self.data, self.place(tables[0]))[0])
        at = self.place(self.values("GNU_HASH")[0])
        buckets, first, bloom, _ = struct.unpack_from("<IIII", self.data, at)
        table = at + 16 + 8 * bloom
        last = max(struct.unpack_from(f"<{buckets}I", self.data, table), default=0)
        if last < first:
            return int(first)
        chain = table + 4 * buckets
        while not struct.unpack_from("<I", self.data, chain + 4 * (last - first))[0] & 1:
            last += 1
        return int(last) + 1

    def symbols(self) -> Iterator[tuple[str, bool]]:
        at = self.place(self.values("SYMTAB")[0])
        raw = self.data[at : at + 24 * self.symbol_count()]
        for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", raw):
            if name:
                yield self.string(name), section != 0

    def needed_versions(self) -> Iterator[str]:
        if not self.values("VERNEED"):
            return
        at = self.place(self.values("VERNEED")[0])
        for _ in range(self.values("VERNEEDNUM")[0]):
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            item = at + first
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", self.data, item)
                yield self.string(name)
                item += step
            at += following

    def elf(self) -> Elf:
        self.strings = self.place(self.values("STRTAB")[0])
        symbols = list(self.symbols())

        def paths(name: str) -> tuple[str, ...]:
            return tuple(
                part for value in self.values(name) for part in self.string(value).split(":")
            )

        return Elf(
            path=self.path,
            soname=next((self.string(value) for value in self.values("SONAME")), ""),
            needed=tuple(self.string(value) for value in self.values("NEEDED")),
            rpath=paths("RPATH"),
            runpath=paths("RUNPATH"),
            defined=frozenset(name for name, here in symbols if here),
            undefined=frozenset(name for name, here in symbols if not here),
            versions=frozenset(self.needed_versions()),
        )
