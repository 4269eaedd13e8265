"""A base of the patch series: base.toml, the series, and the patches' headers (format:
patches/README.md).
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotools.env import ROOT, UserError

LINALG = "aten/src/ATen/native/cuda/linalg"
FIELDS = (
    "Description",
    "Bug",
    "Origin",
    "Forwarded",
    "Applied-Upstream",
    "Last-Update",
    "Removal-plan",
    "Measured",
)
NULL_BLOB = "0" * 40


def blob_id(data: bytes) -> str:
    """The id that git gives a file with this content (`git hash-object`)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def check_sha256(path: Path, wanted: str) -> None:
    """UserError when the file's checksum is not `wanted`, or when there is none to compare with."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    if not wanted:
        raise UserError(
            f"there is no checksum to verify {path} by; give one: --sha256 {digest.hexdigest()}"
        )
    if digest.hexdigest() != wanted.lower():
        raise UserError(
            f"{path} is not the file that is expected: its sha256 is {digest.hexdigest()}, pinned "
            f"is {wanted}. If it "
            "is another packing of the same release, give its own checksum: --sha256 SUM (each "
            "file is verified "
            "by itself all the same)"
        )


@dataclass(frozen=True)
class AptSource:
    """Where Debian has the release's tarball."""

    package: str
    version: str
    suite: str
    tarball: str


@dataclass(frozen=True)
class WheelFacts:
    """What a stock wheel is known to be; checked against the wheel before anything is built."""

    version: str
    git: str
    cuda: str
    cxx11_abi: bool
    cpu_macros: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """One file of a patch: its blob before (None: it is added) and after (None: it is removed)."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Patch:
    """One patch file as written; `problems` is what patches/README.md forbids and it does."""

    name: str
    path: Path
    subject: str
    fields: Mapping[str, str]
    changes: tuple[Change, ...]
    problems: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Checksum of the patch file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    @property
    def code_sha256(self) -> str:
        """Checksum of what the patch changes: the file without its description."""
        data = self.path.read_bytes()
        start = data.find(b"\n---\n")
        return hashlib.sha256(data[max(start, 0) :]).hexdigest()


@dataclass(frozen=True)
class Base:
    """One folder below patches/."""

    folder: Path
    version: str
    tag: str
    url: str
    apt: AptSource | None
    tarball_sha256: str
    blobs: Mapping[str, str]
    extra: tuple[str, ...]  # read by a check though no patch touches them
    entries: tuple[str, ...]  # linalg entries whose function the series changes
    package_only: tuple[str, ...]  # patterns: in aten_overrides/csrc/linalg, but not for ATen
    wheels: Mapping[str, WheelFacts]
    fmt: Mapping[str, str]  # Debian's package of fmt's headers, for Module.cpp

    @property
    def name(self) -> str:
        """The folder's name: "v2.6.0"."""
        return self.folder.name

    def is_package_only(self, name: str) -> bool:
        """Whether `name`, a path below aten_overrides/csrc/linalg, is not for ATen."""
        return any(
            fnmatch.fnmatchcase(name, pattern) or name.startswith(f"{pattern}/")
            for pattern in self.package_only
        )

    def series(self) -> list[str]:
        """Patch file names in the order of application; UserError when one is listed twice or is a
        path.
        """
        path = self.folder / "series"
        if not path.is_file():
            raise UserError(f"{path} is missing; it lists the patches in their order, one a line")
        lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
        names = [line for line in lines if line and not line.startswith("#")]
        for name in names:
            if "/" in name or not name.endswith(".patch"):
                raise UserError(f"{path}: {name!r} is not the name of a .patch file beside it")
            if names.count(name) > 1:
                raise UserError(f"{path} lists {name} twice")
        return names

    def patches(self) -> list[Patch]:
        """The patches of the series, read; UserError when one is missing."""
        result = []
        for name in self.series():
            path = self.folder / name
            if not path.is_file():
                raise UserError(f"{self.folder / 'series'} lists {name}, which is not there")
            result.append(read_patch(path))
        return result

    def upto(self, last: str | None) -> list[Patch]:
        """The patches up to and including `last` (with or without .patch); all when None, none for
        "none".
        """
        patches = self.patches()
        if last is None:
            return patches
        if last == "none":
            return []
        wanted = last if last.endswith(".patch") else f"{last}.patch"
        names = [patch.name for patch in patches]
        if wanted not in names:
            raise UserError(
                f"{last} is not in {self.folder / 'series'}. It lists: "
                f"{', '.join(names) or 'nothing'}"
            )
        return patches[: names.index(wanted) + 1]


def load(name: str, root: Path | None = None) -> Base:
    """Reads the base `name` ("v2.6.0") below `root` (default: patches/); UserError when unknown or
    malformed.
    """
    # Here, because the loader and tools/gpu-test run in a user's Python, which need not have tomli.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    root = root or ROOT / "patches"
    path = root / name / "base.toml"
    if "/" in name or not path.is_file():
        known = sorted(entry.parent.name for entry in root.glob("*/base.toml"))
        raise UserError(
            f"there is no base {name!r} in {root}. There are: {', '.join(known) or 'none'}"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        if table.get("kind") == "edits":
            raise UserError(
                f"{path.parent} holds edits, not patches: tools/patchset compose makes patches of "
                "them for a checkout"
            )
        return _from_table(path.parent, table)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is incomplete or malformed: {error}") from None


def _from_table(folder: Path, table: dict[str, Any]) -> Base:
    wheels = {
        version: WheelFacts(
            version, facts["git"], facts["cuda"], facts["cxx11_abi"], tuple(facts["cpu_macros"])
        )
        for version, facts in table.get("wheels", {}).items()
    }
    apt = AptSource(**table["apt"]) if "apt" in table else None
    return Base(
        folder=folder,
        version=table["version"],
        tag=table["tag"],
        url=table["url"],
        apt=apt,
        tarball_sha256=table.get("tarball_sha256", ""),
        blobs=dict(table["blobs"]),
        extra=tuple(table.get("extra", ())),
        entries=tuple(table.get("entries", ())),
        package_only=tuple(table.get("package_only", ())),
        wheels=wheels,
        fmt=dict(table.get("fmt", {})),
    )


# --- patches --------------------------------------------------------------------------------------
# -------------

_DIFF = re.compile(r"^diff --git a/(.+) b/(.+)$")
_INDEX = re.compile(r"^index ([0-9a-f]+)\.\.([0-9a-f]+)(?: \d{6})?$")
_RELEASE = re.compile(r"^\d+\.\d+(\.\d+)?(, https://\S+)?$")


def read_patch(path: Path) -> Patch:
    """Reads one patch; never raises for its content: what is wrong stands in `problems`."""
    data = path.read_bytes()
    problems: list[str] = []
    if b"\r" in data:
        problems.append("holds carriage returns")
    if not data.endswith(b"\n"):
        problems.append("does not end in a newline")
    text = data.decode("utf-8", errors="replace")
    if "\ufffd" in text:
        problems.append("is not UTF-8")
    head, _, diff = text.partition("\ndiff --git ")
    mail, separator, _ = head.partition("\n---\n")
    if not separator:
        problems.append("has no line '---' between the message and the diff")
    header, _, body = mail.partition("\n\n")
    problems += _mail_problems(header)
    subject = re.search(r"^Subject: (?:\[PATCH[^\]]*\] )?(.*(?:\n .*)*)", header, re.M)
    fields, field_problems = parse_fields(body)
    changes, change_problems = _changes("diff --git " + diff if diff else "")
    return Patch(
        path.name,
        path,
        " ".join(subject[1].split()) if subject else "",
        fields,
        tuple(changes),
        tuple(problems + field_problems + change_problems),
    )


def _mail_problems(header: str) -> list[str]:
    missing = [
        key for key in ("From", "Date", "Subject") if not re.search(rf"^{key}: \S", header, re.M)
    ]
    problems = [f"its mail header lacks {key}:" for key in missing]
    if not header.startswith("From "):
        problems.append("does not start with a mail's 'From ' line")
    return problems


def parse_fields(body: str) -> tuple[dict[str, str], list[str]]:
    """The fields in a commit message (patches/README.md) and what is wrong with them."""
    paragraphs = [
        p for p in re.split(r"\n\s*\n", body) if p.lstrip("\n").startswith("Description:")
    ]
    if len(paragraphs) != 1:
        return {}, [f"has {len(paragraphs) or 'no'} paragraphs that start with 'Description:'"]
    fields: dict[str, str] = {}
    problems: list[str] = []
    key = ""
    for line in paragraphs[0].strip("\n").splitlines():
        if line[:1] in (" ", "\t") and key:
            # As in DEP-3, a line with a lone point separates paragraphs.
            more = "\n" if line.strip() == "." else f" {line.strip()}"
            fields[key] = re.sub(r"\n ", "\n", (fields[key] + more).lstrip(" "))
            continue
        name, colon, value = line.partition(":")
        if not colon or name not in FIELDS:
            problems.append(f"has no field of this name: {line!r}")
            continue
        if name in fields:
            problems.append(f"has {name} twice")
        key = name
        fields[key] = value.strip()
    problems += [f"lacks {name}" for name in FIELDS if not fields.get(name)]
    return fields, problems + _value_problems(fields)


def _value_problems(fields: Mapping[str, str]) -> list[str]:
    def bad(name: str, pattern: str) -> bool:
        return bool(fields.get(name)) and re.fullmatch(pattern, fields[name]) is None

    problems = []
    if bad("Bug", r"https://\S+( https://\S+)*"):
        problems.append("Bug is not a list of https addresses")
    if bad("Origin", r"(upstream|backport|vendor|other)(, .+)?"):
        problems.append(
            "Origin is not upstream, backport, vendor or other, then a comma and the source"
        )
    if bad("Forwarded", r"no|not-needed|https://\S+"):
        problems.append("Forwarded is not no, not-needed or an https address")
    applied = fields.get("Applied-Upstream", "no")
    if applied != "no" and _RELEASE.match(applied) is None:
        problems.append("Applied-Upstream is not no, or a release, a comma and an https address")
    if bad("Last-Update", r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"):
        problems.append("Last-Update is not a date YYYY-MM-DD")
    return problems


def _changes(diff: str) -> tuple[list[Change], list[str]]:
    changes: list[Change] = []
    problems: list[str] = []
    path = ""
    in_header = False
    for line in diff.splitlines():
        if match := _DIFF.match(line):
            in_header = True
            path = match[2]
            if match[1] != match[2]:
                problems.append(f"renames {match[1]}")
        elif line.startswith("@@ "):
            in_header = False
        elif in_header and (match := _INDEX.match(line)):
            old, new = match[1], match[2]
            if len(old) != 40 or len(new) != 40:
                problems.append(
                    f"{path}: the index line's blob ids are abbreviated (use --full-index)"
                )
            changes.append(
                Change(
                    path, None if not old.strip("0") else old, None if not new.strip("0") else new
                )
            )
        elif in_header and line.startswith(
            ("old mode", "new mode", "rename ", "copy ", "similarity ")
        ):
            problems.append(f"{path}: {line}")
        elif line.startswith(("GIT binary patch", "Binary files ")):
            problems.append(f"{path}: is binary")
        elif line.startswith("\\ No newline"):
            problems.append(f"{path}: does not end in a newline")
    if not changes:
        problems.append("changes no file")
    return changes, problems


def touched(patches: list[Patch]) -> list[str]:
    """The paths that exist in the base and that the patches change, sorted."""
    seen: set[str] = set()
    added: set[str] = set()
    for patch in patches:
        for change in patch.changes:
            if change.old is None and change.path not in seen:
                added.add(change.path)
            elif change.path not in added:
                seen.add(change.path)
    return sorted(seen)


def update_blobs(base: Base, blobs: Mapping[str, str]) -> str:
    """The text of base.toml with its [blobs] table, the last of the file, replaced by `blobs`."""
    text = (base.folder / "base.toml").read_text(encoding="utf-8")
    head, found, _ = text.partition("\n[blobs]\n")
    if not found:
        raise UserError(f"{base.folder / 'base.toml'} has no [blobs] table")
    rows = [f'"{path}" = "{blob}"' for path, blob in sorted(blobs.items())]
    return head + found + "\n".join(rows) + "\n"
