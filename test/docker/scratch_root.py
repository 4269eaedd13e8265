"""A Debian in a folder (debootstrap), in which the images' apt and pip steps run for real.

It stands in for the CUDA base image: the same package manager and package names, no CUDA. The
folder with the steps done is cached under a key of their text, so that only a change runs them
again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import apt

SUITE = "bookworm"
PACKAGE = "debootstrap"
VERSION = "1.0.128+nmu2+deb12u2"
SHA256 = "63f354316e9bbe747b143b7b0d83e5f237c90314a17734fba9ff202c2ef02760"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def key(steps: Sequence[str], files: Sequence[Path]) -> str:
    """Names the root with these steps done, which read these files."""
    digest = hashlib.sha256("\n".join([SUITE, VERSION, *steps]).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def place(name: str) -> Path:
    """Where the root of that key is, or would be."""
    return env.cache_dir() / "tests" / f"scratch-root-{name}"


def reason_against() -> str | None:
    """Why none can be made here; None when it can."""
    if os.geteuid() != 0:
        return "only root may change its root folder"
    if not apt.KEYRING.is_file() or shutil.which("apt-get") is None:
        return "no Debian machine"
    if shutil.which("unshare") is None:
        return "unshare (util-linux) is missing"
    return None


def make(name: str, steps: Sequence[str], copies: dict[Path, str]) -> Path:
    """The root with `copies` (file or folder to the place in it) and the steps done, made once."""
    root = place(name)
    env.make_folder(root.parent)
    with env.lock(root.parent / ".scratch-root.lock", "making a scratch root"):
        if root.is_dir():
            return root
        for old in root.parent.glob("scratch-root-*"):  # with other steps: nobody needs it any more
            shutil.rmtree(old)
        with tempfile.TemporaryDirectory(prefix=".tmp-root-", dir=root.parent) as folder:
            fresh = Path(folder) / "root"
            _bootstrap(Path(folder), fresh)
            for source, target in copies.items():
                copy = shutil.copytree if source.is_dir() else shutil.copyfile
                (fresh / target.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                copy(source, fresh / target.lstrip("/"))
            for step in steps:
                done = run(fresh, step)
                if done.returncode != 0:
                    raise UserError(f"this step failed: {step}\n{done.stdout[-3000:]}")
            shutil.rmtree(fresh / "var/cache/apt", ignore_errors=True)
            shutil.rmtree(fresh / "root/.cache", ignore_errors=True)
            fresh.rename(root)
    return root


def _bootstrap(folder: Path, root: Path) -> None:
    tool = folder / "debootstrap"
    apt.binary_package(PACKAGE, VERSION, SUITE, SHA256, tool, folder / "apt")
    variables = {**os.environ, "DEBOOTSTRAP_DIR": str(tool / "usr/share/debootstrap")}
    command = [str(tool / "usr/sbin/debootstrap"), "--variant=minbase"]
    command += [f"--keyring={apt.KEYRING}", SUITE, str(root), apt.archive_uri()]
    done = subprocess.run(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise UserError(f"debootstrap failed:\n{done.stdout[-2000:]}")
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    if _CERTIFICATES.is_file():  # a network may have an authority of its own
        (root / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_CERTIFICATES, root / "etc/ssl/test-certificates.crt")


def run(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell command in the root as the images' SHELL does, with /proc and the network."""
    kept = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C"}
    variables |= {"DEBIAN_FRONTEND": "noninteractive", "PIP_CERT": "/etc/ssl/test-certificates.crt"}
    script = 'mount -t proc proc "$1/proc" && exec chroot "$1" /bin/bash -euo pipefail -c "$2"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(root), command],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
