"""Runs git so that the user's settings, hooks and templates cannot change what it does."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
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
# Beat a repository's own .git/config, which is in force whatever GIT_CONFIG_GLOBAL is.
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


@cache
def _trust(_home: tuple[str | None, ...]) -> str:
    """A configuration file with the user's safe.directory entries alone, os.devnull without any.

    git refuses a checkout that another user owns unless it is listed there, and takes such a list
    from a configuration file only.
    """
    asked = ["git", "config", "--null", "--get-all", "safe.directory"]
    alone = {**os.environ, "GIT_DIR": os.devnull}  # of no repository
    done = subprocess.run(asked, cwd="/", capture_output=True, env=alone)
    entries = done.stdout.decode(errors="surrogateescape").split("\0")[:-1]
    if done.returncode != 0 or not entries:
        return os.devnull
    handle, name = tempfile.mkstemp(prefix="patchset-", suffix=".gitconfig")
    os.close(handle)
    atexit.register(Path(name).unlink, missing_ok=True)
    for entry in entries:
        add = ["git", "config", "--file", name, "--add", "safe.directory", entry]
        subprocess.run(add, cwd="/", check=True, capture_output=True)
    return name


def environment() -> dict[str, str]:
    """The process environment without the user's GIT_ variables, and without the user's
    configuration save for which checkouts to trust.
    """
    places = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env.update(
        GIT_CONFIG_GLOBAL=_trust(tuple(os.environ.get(place) for place in places)),
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


def sparse(clone: Path, paths: Sequence[str]) -> None:
    """Lets a checkout of `clone` write `paths` only.

    By hand, since `sparse-checkout set --no-cone` needs git 2.35 and Ubuntu 22.04 has 2.34.
    """
    git(clone, "config", "core.sparseCheckout", "true")
    git(clone, "config", "core.sparseCheckoutCone", "false")
    place = clone / ".git/info/sparse-checkout"
    place.parent.mkdir(exist_ok=True)
    place.write_text("".join(f"/{path}\n" for path in paths), encoding="utf-8")
