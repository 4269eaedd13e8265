"""Runs git so that the user's settings, hooks and templates cannot change what it does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aotools.env import UserError

# Fixed, so that applying the same series twice gives the same commit ids.
IDENTITY = {
    "GIT_COMMITTER_NAME": "aten-overrides",
    "GIT_COMMITTER_EMAIL": "patchset@aten-overrides.invalid",
    "GIT_COMMITTER_DATE": "2025-01-29T00:00:00+0000",
}
BASE_AUTHOR = {
    "GIT_AUTHOR_NAME": "aten-overrides",
    "GIT_AUTHOR_EMAIL": "patchset@aten-overrides.invalid",
    "GIT_AUTHOR_DATE": "2025-01-29T00:00:00+0000",
}
# Beat a repository's own .git/config, which GIT_CONFIG_GLOBAL=/dev/null leaves in force.
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.autocrlf=false",
    "core.eol=lf",
    "core.safecrlf=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.fsmonitor=false",
    "apply.whitespace=nowarn",
    "apply.ignoreWhitespace=no",
    "am.keepcr=false",
    "am.threeWay=false",
    "am.messageId=false",
    "mailinfo.scissors=false",
    "commit.gpgSign=false",
    "commit.cleanup=verbatim",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "color.ui=false",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
)

_NETWORK = ("GIT_SSL", "GIT_SSH", "GIT_PROXY", "GIT_HTTP", "GIT_ASKPASS")


def environment() -> dict[str, str]:
    """The process environment without the user's GIT_ variables, pointed at no configuration."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env.update(
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_SYSTEM=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
        GIT_ATTR_NOSYSTEM="1",
        GIT_TERMINAL_PROMPT="0",
        LC_ALL="C",
        **IDENTITY,
    )
    return env


class GitError(Exception):
    """git failed; the text is what it said."""


def git(
    where: Path,
    *arguments: str,
    stdin: bytes | None = None,
    extra: dict[str, str] | None = None,
    network: bool = False,
) -> bytes:
    """Runs git in `where` and returns its standard output; GitError when it fails.

    With `network` the user's own settings stay in force, because proxies and certificates live
    there.
    """
    return _run(where, arguments, stdin, extra, network).stdout


def git_messages(where: Path, *arguments: str) -> str:
    """Like `git`, but returns what git says on its error output."""
    return _run(where, arguments, None, None, False).stderr.decode(errors="replace")


def _run(
    where: Path,
    arguments: Sequence[str],
    stdin: bytes | None,
    extra: dict[str, str] | None,
    network: bool,
) -> subprocess.CompletedProcess[bytes]:
    if shutil.which("git") is None:
        raise UserError(
            "git is needed and was not found. On Debian and Ubuntu: apt-get install git"
        )
    env = environment() | (extra or {})
    if network:
        for key in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"):
            del env[key]
        env |= {key: value for key, value in os.environ.items() if key.startswith(_NETWORK)}
    settings: Sequence[str] = [part for setting in _SETTINGS for part in ("-c", setting)]
    done = subprocess.run(
        ["git", *settings, *arguments], cwd=where, env=env, input=stdin, capture_output=True
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        if "No space left on device" in said:
            raise UserError(f"the disk of {where} is full: {said.splitlines()[-1]}")
        raise GitError(said)
    return done


def text(where: Path, *arguments: str) -> str:
    """Like `git`, but returns the output as text without the newline at its end."""
    return git(where, *arguments).decode(errors="surrogateescape").rstrip("\n")


def init(folder: Path) -> None:
    """Makes `folder` an empty repository without any of the user's templates."""
    git(folder, "init", "-q", "--template=", "-b", "patched")
