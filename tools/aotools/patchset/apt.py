"""Gets files from Debian's archive by apt-get, with lists of our own: no root, nothing of the
system changes.

The archive's address is the one the machine is configured with, the suite the one asked for, and
the lists are verified by Debian's archive keyring, which every Debian release since 12 has for
trixie too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset.base import AptSource, check_sha256
from aotools.progress import Bar

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_ETC = Path("/etc/apt")
_TARBALL_BYTES = 27e6


def archive_uri(etc: Path = _ETC) -> str:
    """The address of the Debian archive that this machine uses; UserError when there is none."""
    texts = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    found: list[str] = []
    for path in texts:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if path.suffix == ".sources":
            for uris in re.findall(r"^URIs:\s*(.+)$", text, re.M | re.I):
                found += uris.split()
        else:
            found += re.findall(r"^deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)", text, re.M)
    for uri in found:
        if re.fullmatch(r"(https?|file|mirror\+\S+)://?\S*/debian/?", uri):
            return uri.rstrip("/")
    raise UserError(
        f"no Debian archive is configured in {etc} (this machine's packages come from elsewhere)"
    )


def _get(state: Path, sources: str, arguments: Sequence[str], where: Path) -> None:
    """One apt-get run with `sources` as its only list; UserError with its words when it fails."""
    program = shutil.which("apt-get")
    if program is None:
        raise UserError("apt-get was not found: this is no Debian machine")
    if not KEYRING.is_file():
        raise UserError(
            f"{KEYRING} is missing (package debian-archive-keyring), so nothing could be verified"
        )
    for name in ("lists/partial", "cache/archives/partial"):
        env.make_folder(state / name)
    listed = state / "sources.list"
    env.write_file(listed, sources)
    options = {
        "Dir::Etc::sourcelist": listed,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",  # as root apt would hand over to a user who cannot write here
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "60",
        "Acquire::Languages": "none",
    }
    command = [program, "-q"]
    for key, value in options.items():
        command += ["-o", f"{key}={value}"]
    variables = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [*command, *arguments], cwd=where, env=variables, capture_output=True, text=True
    )
    said = (done.stderr + done.stdout).strip()
    # `update` ends with 0 even when the archive could not be reached.
    failed = re.search(r"^(W: Failed to fetch|E: |Err:).*", done.stderr + "\n" + done.stdout, re.M)
    if done.returncode != 0 or (arguments[0] == "update" and failed):
        if "No space left on device" in said or "enough free space" in said:
            raise UserError(f"the disk filled up: apt-get could not write below {state}")
        rows = [row for row in said.splitlines() if re.match(r"(E|W|Err):?", row)][:4]
        raise UserError(f"apt-get {arguments[0]} failed: " + ("\n  ".join(rows) or said[-400:]))


def source_tarball(
    wanted: AptSource,
    kept: Path,
    sha256: str,
    state: Path,
    *,
    progress: bool = True,
    uri: str | None = None,
) -> None:
    """Downloads the source package's tarball to `kept`, its checksum verified."""
    line = f"deb-src [signed-by={KEYRING}] {uri or archive_uri()} {wanted.suite} main\n"
    env.make_folder(kept.parent)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=kept.parent) as name:
        where = Path(name)

        def size() -> float:
            return sum(path.stat().st_size for path in where.rglob("*.xz*"))

        bar = Bar(
            f"fetching {wanted.package} {wanted.version} from Debian {wanted.suite}",
            _TARBALL_BYTES,
            measure=size,
        )
        with bar if progress else contextlib.nullcontext():
            _get(state, line, ["update"], where)
            package = f"{wanted.package}={wanted.version}"
            _get(state, line, ["source", "--download-only", "--tar-only", package], where)
        found = where / wanted.tarball
        if not found.is_file():
            raise UserError(f"apt-get source {package} brought no {wanted.tarball}")
        check_sha256(found, sha256)
        found.replace(kept)


def binary_package(
    package: str,
    version: str,
    suite: str,
    sha256: str,
    to: Path,
    state: Path,
    *,
    uri: str | None = None,
) -> None:
    """Unpacks one Debian package, its checksum verified, so that the folder `to` appears whole or
    not at all.
    """
    if shutil.which("dpkg-deb") is None:
        raise UserError("dpkg-deb was not found: this is no Debian machine")
    line = f"deb [signed-by={KEYRING}] {uri or archive_uri()} {suite} main\n"
    env.make_folder(to.parent)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=to.parent) as name:
        where = Path(name)
        _get(state, line, ["update"], where)
        _get(state, line, ["download", f"{package}={version}"], where)
        found = list(where.glob("*.deb"))
        if len(found) != 1:
            raise UserError(f"apt-get download {package}={version} brought {len(found)} packages")
        check_sha256(found[0], sha256)
        done = subprocess.run(
            ["dpkg-deb", "-x", str(found[0]), str(where / "root")], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise UserError(f"dpkg-deb cannot unpack {found[0].name}: {done.stderr.strip()}")
        if not to.exists():
            (where / "root").rename(to)
