"""The command `tools/patchset port`, and the folder that its --to makes: a base of its own."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import export, git, port, port_target
from aotools.patchset.base import LINALG, Base, blob_id

NAME, TEXT = (
    "port",
    "Say what becomes of each patch on another PyTorch tree, merging by three ways.",
)


def add(sub: argparse.ArgumentParser) -> None:
    """The command's options."""
    sub.add_argument(
        "--onto", required=True, metavar="REF", help=f"what to port onto: {port_target.FORMS}"
    )
    sub.add_argument("--onto-url", metavar="URL", help="another repository for a tag or branch")
    sub.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help="write there a base of its own: the patches that went in, files with marked conflicts",
    )
    sub.add_argument("--json", action="store_true", help="print the result as JSON")


def run(base: Base, options: argparse.Namespace, source: Callable[[], Path]) -> int:
    """Ports and reports; 1 when a patch has a conflict."""
    to = options.to.expanduser().absolute() if options.to else None
    if to is not None and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UserError(f"{to} exists already and is left alone; name a new folder with --to")
    if options.dry_run:
        print(f"would try {len(base.series())} patches of {base.name} on {options.onto}")
        if to is not None:
            print(f"would write those that go in to {to}")
        return 0
    files = source()
    paths = {change.path for patch in base.patches() for change in patch.changes}
    target = port_target.read(
        base,
        options.onto,
        paths | set(base.blobs),
        url=options.onto_url,
        progress=not options.json and sys.stdout.isatty(),
    )
    ported = port.port(base, files, target)
    if to is not None:
        write(ported, to)
    if options.json:
        print(json.dumps(ported.as_json(), indent=1))
    else:
        print(ported.report())
        if to is not None:
            print(f"{to}: {len(ported.names('clean', 'merged'))} patches, base.toml, series")
            if ported.names("conflict"):
                print(f"{to / 'conflicts'}: the files in conflict, marked")
            tree = Path(options.onto).expanduser()
            if tree.is_dir() and to.parent == (options.patches_root or env.ROOT / "patches"):
                words = f"apply --base {to.name} --source dir {tree.absolute()}"
                print(f"next: tools/patchset {words} --onto {tree.absolute()}")
    return 1 if ported.count("conflict") else 0


def write(ported: port.Ported, to: Path) -> None:
    """Makes the folder `to`: base.toml, series, the patches that went in, conflicts/PATCH/FILE.

    It appears whole or not at all.
    """
    env.make_folder(to.parent)
    with tempfile.TemporaryDirectory(prefix=f".tmp-{to.name}-", dir=to.parent) as name:
        fresh = Path(name) / "base"
        fresh.mkdir()
        repo = Path(name) / "repo"
        repo.mkdir()
        _patches(ported, repo, fresh)
        for result in ported.results:
            for one in result.files:
                if one.marked is not None:
                    place = fresh / "conflicts" / result.patch.name / one.path
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(one.marked)
        (fresh / "base.toml").write_text(base_toml(ported), encoding="utf-8")
        (fresh / "series").write_text(_series(ported), encoding="utf-8")
        if to.exists():
            to.rmdir()  # empty, as was checked
        fresh.rename(to)


def _patches(ported: port.Ported, repo: Path, fresh: Path) -> None:
    """Commits the tree's files, then each patch that went in, and renders it."""
    git.init(repo)
    index = {"GIT_INDEX_FILE": str(repo / ".git/port-index")}

    def put(path: str, data: port.Content) -> None:
        if data is None:
            git.git(repo, "update-index", "--force-remove", path, extra=index)
            return
        blob = git.git(repo, "hash-object", "-w", "--stdin", stdin=data).decode().strip()
        git.git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", extra=index)

    def commit(what: port.Commit, *parents: str) -> str:
        tree = git.git(repo, "write-tree", extra=index).decode().strip()
        text = what.message.rstrip().encode() + b"\n"
        arguments = ["commit-tree", tree, *parents]
        return git.git(repo, *arguments, stdin=text, extra=dict(what.author)).decode().strip()

    for path, data in ported.target.contents.items():
        put(path, data)
    head = commit(port.Commit("the tree", git.BASE_AUTHOR))
    made = [head]
    rendered = []
    for result in ported.results:
        if result.verdict not in ("clean", "merged"):
            continue
        for path, content in result.after.items():
            put(path, content)
        made.append(commit(result.commit, "-p", made[-1]))
        data = export.render(repo, made[-1])
        rendered.append(data)
        (fresh / result.patch.name).write_bytes(data)
    export.prove(repo, head, made[1:], rendered)


def base_toml(ported: port.Ported) -> str:
    """The new base's base.toml: its blobs, and what of the old one holds for it too."""
    base, target = ported.base, ported.target
    version = target.version or "unknown"
    used = {path for result in ported.results for path in result.after} | set(base.extra)
    listed = {
        path: data
        for path, data in target.contents.items()
        if path in used or path.startswith(f"{LINALG}/")
    }
    extra = [path for path in base.extra if path in listed]
    rows = [
        f"# Ported from {base.name} onto {target.name}. Not in it: "
        f"{', '.join(ported.names('conflict')) or 'nothing'} (conflict), "
        f"{', '.join(ported.names('already upstream')) or 'nothing'} (already upstream).",
        f"version = {json.dumps(version)}",
        f"tag = {json.dumps(f'v{version}')}",
        f"url = {json.dumps(base.url)}",
        f"entries = {json.dumps(list(base.entries))}",
        f"package_only = {json.dumps(list(base.package_only))}",
        f"extra = {json.dumps(extra)}",
        "",
        "[blobs]",
        *(f"{json.dumps(path)} = {json.dumps(blob_id(d))}" for path, d in sorted(listed.items())),
    ]
    return "\n".join(rows) + "\n"


def _series(ported: port.Ported) -> str:
    rows = []
    for result in ported.results:
        went = result.verdict in ("clean", "merged")
        rows.append(result.patch.name if went else f"# {result.verdict}: {result.patch.name}")
    return "\n".join(rows) + "\n"
