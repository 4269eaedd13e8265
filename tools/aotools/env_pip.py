"""pip for the project's own folders: one call per file, its failures in plain words."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from aotools.env_base import Requirements, UserError
from aotools.progress import Bar, size_text

_NETWORK = (
    "NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
    "|ConnectionResetError|SSLError|Temporary failure in name resolution|Network is unreachable"
)


def pip_problem(log: str, what: str) -> str:
    """What a failed pip run's log says, in words for the user."""
    if "No space left on device" in log or "Errno 28" in log:
        return (
            f"the disk filled up while {what} was being installed. Nothing half installed is left; "
            "free some space, or put the cache on another disk: ATEN_OVERRIDES_CACHE=FOLDER"
        )
    if re.search(_NETWORK, log):
        return (
            f"pip could not reach its package index for {what}. Check the network (behind a proxy "
            "or a mirror: `pip config set global.proxy ...`, `global.index-url`) and run again; "
            "finished downloads are kept"
        )
    errors = [line.split("ERROR: ", 1)[1] for line in log.splitlines() if "ERROR: " in line]
    said = "\n  ".join(errors[-6:]) or log[-600:].strip()
    return (
        f"pip could not install {what}. It said:\n  {said}\n"
        "Settings of your own can be the cause (constraints, another index): see `pip config list`"
    )


def pip_environment(base: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """The environment for pip: the user's settings, less those that say where to install."""
    env = {key: value for key, value in base.items() if key != "PYTHONPATH"}
    # Index, proxy and certificate settings stay in force.
    env.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
    for key in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PIP_LOG"):
        env.pop(key, None)
    env["TMPDIR"] = str(temporary)  # /tmp is often a small memory disk
    return env


def _folder_bytes(folder: Path) -> float:
    """Size of all files in a folder that another process is filling."""
    total = 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 (speed)
            except OSError:  # moved or removed since it was listed
                continue
    return total


def pip_install(
    python: Path,
    needs: Requirements,
    extra: list[str],
    temporary: Path,
    what: str,
    *,
    progress: bool,
) -> None:
    """One pip call for a requirements file; raises UserError with the reason when it fails."""
    log = temporary / "pip.log"
    command = [str(python), "-m", "pip", "install", "-q", f"--log={log}", "--progress-bar=off"]
    command += ["--no-deps", "--only-binary=:all:", "--no-compile"]
    command += [*extra, "-r", str(needs.path)]
    label = f"fetching {what} ({size_text(needs.download_bytes)} to download)"
    written = needs.download_bytes + needs.disk_bytes  # the archives stay until all are unpacked
    bar = Bar(label, written, measure=lambda: _folder_bytes(temporary))
    child = subprocess.Popen(
        command,
        env=pip_environment(os.environ, temporary),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # all of it is in the log
    )
    try:
        if progress:
            with bar:
                code = child.wait()
        else:
            code = child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
    if code != 0:
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        raise UserError(pip_problem(text, what))
