"""tools/patchset: fetch, apply, check, relink, refresh, export, port, and what goes upstream."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aotools.env import ROOT, UserError, run_cli
from aotools.patchset import (
    apply,
    base,
    build_full,
    compose,
    edits,
    export,
    fetch,
    kernels,
    port_cli,
    pr,
    refresh,
    relink,
    test_linalg,
    wheel,
)
from aotools.progress import seconds_text
from aten_overrides._nvcc import Nvcc

# Commands in modules of their own: NAME, TEXT, add(parser), run(base, options, source).
MODULES = (refresh, export, port_cli, pr, build_full, test_linalg)


def build_dir(base_: base.Base) -> Path:
    """Where everything that is made for a base lies: build/<base> in the checkout."""
    return ROOT / "build" / base_.name


def parser() -> argparse.ArgumentParser:
    """The command line of tools/patchset."""
    top = argparse.ArgumentParser(prog="tools/patchset", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument(
            "--base", default="v2.6.0", help="folder below patches/ (default: %(default)s)"
        )
        sub.add_argument("--patches-root", type=Path, help=argparse.SUPPRESS)
        sub.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and do nothing"
        )
        return sub

    def source_options(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--source",
            nargs="+",
            metavar=("KIND", "PATH"),
            help="apt | git | tarball FILE | dir FOLDER; default: the cache, then apt, then git",
        )
        sub.add_argument("--url", help="for git: another address than base.toml's")
        sub.add_argument("--sha256", help="for tarball: its checksum, if it is not the pinned one")

    sub = command("fetch", "Bring the source files of a base into the cache, each verified.")
    source_options(sub)

    sub = command(
        "apply", "Apply the series: into a work tree of its own, or onto a PyTorch checkout."
    )
    source_options(sub)
    where = sub.add_mutually_exclusive_group()
    where.add_argument("--to", type=Path, help="the work tree to make (default: build/<base>/src)")
    where.add_argument("--onto", type=Path, help="a PyTorch checkout or source tree of the base")
    sub.add_argument("--upto", metavar="PATCH", help="the last patch to apply; none: the bare base")
    sub.add_argument(
        "--continue",
        dest="go_on",
        action="store_true",
        help="with --onto: apply what a half-applied tree lacks",
    )

    sub = command("check", "Prove that the series is in order, applies, compiles and is described.")
    source_options(sub)
    sub.add_argument("--fast", action="store_true", help="without compiling")
    sub.add_argument(
        "--wheel", default=None, help="compile against this torch (default: the base's version)"
    )
    sub.add_argument(
        "--update-base",
        action="store_true",
        help="write the [blobs] table of base.toml anew from the series",
    )

    sub = command(
        "relink", "Build the patched linalg sources into a library that a stock wheel loads."
    )
    source_options(sub)
    sub.add_argument(
        "--wheel",
        default=None,
        help="2.6.0 | 2.11.0 | existing (the torch of your own Python; PYTHON names it) | "
        "a site-packages folder "
        "(default: the base's version)",
    )
    sub.add_argument(
        "--magma",
        choices=("wheel", "off"),
        help="default: the wheel's, if it exports what is needed",
    )
    sub.add_argument(
        "--entries",
        default="changed",
        help="which of the 15 entries are ours: changed (default) | all | a,b,c",
    )
    sub.add_argument(
        "--patches",
        metavar="PATCH",
        help="the last patch to build in (default: all); none: unpatched",
    )
    sub.add_argument(
        "--nvcc",
        type=Path,
        help="for the CUDA kernels (default: one of the wheel's CUDA; without one their patch is "
        "left out); of a newer CUDA, it needs a driver of that CUDA",
    )
    sub.add_argument(
        "--architectures",
        metavar="80,90",
        help="of the CUDA kernels: compute capabilities, all, or native, the GPU at hand (default)",
    )
    sub.add_argument(
        "--tree", type=Path, help="build from this patched source tree instead of the series"
    )
    sub.add_argument(
        "--out",
        type=Path,
        help="folder for the library and its facts (default: below build/<base>)",
    )
    sub.add_argument("--json", action="store_true", help="print the build facts as JSON")
    for module in MODULES:
        sub = command(module.NAME, module.TEXT)
        source_options(sub)
        module.add(sub)
    sub = command(compose.NAME, compose.TEXT)
    sub.set_defaults(base="main")
    compose.add(sub)
    return top


def main() -> int:
    """Runs one command; returns its exit status."""
    options = parser().parse_args()
    if edits.holds_edits(options.base, options.patches_root):
        return _edits(edits.load(options.base, options.patches_root), options)
    base_ = base.load(options.base, options.patches_root)
    if options.command == compose.NAME:
        raise UserError(
            f"patches/{base_.name} holds patches, not edits: tools/patchset port tries them "
            "on another tree"
        )
    commands = {"fetch": _fetch, "apply": _apply, "check": _check, "relink": _relink}
    if options.command in commands:
        return commands[options.command](base_, options)
    chosen = {module.NAME: module for module in MODULES}[options.command]
    code: int = chosen.run(base_, options, lambda: _source_of(base_, options))
    return code


def _source_of(base_: base.Base, options: argparse.Namespace) -> Path:
    kind, given = _source_option(options)
    return fetch.source(
        base_, kind, given, url=options.url, sha256=options.sha256, progress=sys.stdout.isatty()
    )


def _source_option(options: argparse.Namespace) -> tuple[str | None, Path | None]:
    if options.source is None:
        return ("git" if options.url else None), None
    kind, *rest = options.source
    if kind not in fetch.SOURCES or len(rest) != (kind in ("tarball", "dir")):
        raise UserError("--source takes one of: apt, git, tarball FILE, dir FOLDER")
    return kind, Path(rest[0]) if rest else None


def _fetch(base_: base.Base, options: argparse.Namespace) -> int:
    kind, given = _source_option(options)
    if options.dry_run:
        if kind is None and fetch.ready(base_):
            print(f"nothing to do: {fetch.tree_path(base_)} is complete")
        else:
            how = (
                " ".join([kind, *([str(given)] if given else [])])
                if kind
                else "the cache's tarball, apt, git"
            )
            print(
                f"would fetch {len(base_.blobs)} files of PyTorch {base_.tag} into "
                f"{fetch.tree_path(base_)}: {how}"
            )
        return 0
    tree = _source_of(base_, options)
    print(f"{len(base_.blobs)} files of PyTorch {base_.tag}, verified by their blob ids: {tree}")
    return 0


def _apply(base_: base.Base, options: argparse.Namespace) -> int:
    patches = base_.upto(options.upto)
    if options.go_on and not options.onto:
        raise UserError("--continue belongs to --onto")
    if options.onto:
        from aotools.patchset import onto

        source = _source_of(base_, options)
        target = options.onto.expanduser().absolute()
        for line in onto.apply_onto(
            base_, source, patches, target, go_on=options.go_on, dry_run=options.dry_run
        ):
            print(line)
        return 0
    to = (options.to or build_dir(base_) / "src").expanduser().absolute()
    if options.dry_run:
        print(f"would make {to}: PyTorch {base_.tag} and {len(patches)} patches")
        for patch in patches:
            print(f"  {patch.name}: {patch.subject}")
        return 0
    tree, made = apply.work_tree(base_, _source_of(base_, options), patches, to)
    print(
        f"{tree}: {base_.tag} with {len(patches)} patches{'' if made else ' (was there already)'}"
    )
    for patch in patches:
        print(f"  {patch.name}: {patch.subject}")
    return 0


def _check(base_: base.Base, options: argparse.Namespace) -> int:
    from aotools.patchset import check

    if options.update_base:
        kind, given = _source_option(options)
        if kind not in (None, "dir"):
            raise UserError("--update-base reads the pinned tarball or --source dir FOLDER")
        return check.update_base(base_, given, dry_run=options.dry_run)
    if options.dry_run:
        for name in check.planned(base_, fast=options.fast):
            print(name)
        return 0
    report = check.run(
        base_,
        _source_of(base_, options),
        wheel_spec=options.wheel,
        fast=options.fast,
        build=build_dir(base_),
    )
    return report.exit_code


def _edits(base_: edits.EditBase, options: argparse.Namespace) -> int:
    from aotools.patchset import check_edits

    if options.command == compose.NAME:
        return compose.run(base_, options)
    if options.command == pr.NAME:
        return pr.run_edits(base_, options)
    if options.command != "check" or options.update_base:
        raise UserError(
            f"patches/{base_.name} holds edits, not patches: `tools/patchset compose --onto "
            "CHECKOUT --to FOLDER` makes patches of them; besides, there are `check` and `pr`"
        )
    checkout = check_edits.checkout_of(options.source, base_)
    if options.dry_run:
        for name in check_edits.planned(base_, checkout=checkout is not None, fast=options.fast):
            print(name)
        return 0
    return check_edits.run(
        base_,
        root=options.patches_root,
        checkout=checkout,
        url=options.url,
        wheel_spec=options.wheel,
        fast=options.fast,
        build=build_dir(base_.as_base()),
    ).exit_code


def label(
    base_: base.Base, options: argparse.Namespace, patches: Sequence[base.Patch], *, magma: bool
) -> str:
    """The folder of a library with `patches` below its torch's: another library has another name.

    "patched", "patched-no-magma", "unpatched", "upto-TOPIC", "tree", each with the entries where
    they are not the base's own.
    """
    name = "tree" if options.tree else "unpatched" if not patches else "patched"
    if patches and options.patches:
        name = f"upto-{patches[-1].name.removesuffix('.patch')}"
    entries = relink.parse_entries(options.entries, base_)
    if sorted(entries) != sorted(relink.parse_entries("changed", base_)):
        name += "-all" if options.entries == "all" else f"-only-{'+'.join(sorted(entries))}"
    return name if magma else f"{name}-no-magma"


def _relink(base_: base.Base, options: argparse.Namespace) -> int:
    patches = base_.upto(options.patches)
    spec = options.wheel or base_.version
    out = options.out.expanduser().absolute() if options.out else None
    if options.dry_run:
        what = (
            f"the tree {options.tree}"
            if options.tree
            else f"{base_.tag} and {len(patches)} patches"
        )
        entries = relink.parse_entries(options.entries, base_)
        print(f"would build {what} against torch {spec} into {out or build_dir(base_)}")
        print(f"entries of its own: {', '.join(entries)}")
        return 0
    given = options.tree.expanduser().absolute() if options.tree else None
    if given is not None and not (given / base.LINALG).is_dir():
        raise UserError(f"{given} is not a PyTorch source tree: it has no {base.LINALG}")
    wheel_ = wheel.inspect(wheel.locate(spec))
    patches, nvcc = _kernels(patches, wheel_, options)
    if given is not None:
        tree = given
    else:
        tree = apply.plain_tree(
            base_, _source_of(base_, options), patches, build_dir(base_) / "trees"
        )
    magma, _ = relink.choose_magma(options.magma, wheel_)
    if out is None:
        name = label(base_, options, patches, magma=magma)
        out = build_dir(base_) / f"torch-{wheel_.full_version}" / name
    made = relink.relink(
        base_,
        tree,
        patches,
        wheel_,
        out,
        magma="wheel" if magma else "off",
        entries=options.entries,
        command=shlex.join(["tools/patchset", *sys.argv[1:]]),
        quiet=options.json,
        tree_only=options.tree is not None,
        nvcc=nvcc,
    )
    if options.json:
        print(
            json.dumps(
                {**made.facts, "path": str(made.library), "seconds": round(made.seconds, 2)},
                indent=1,
            )
        )
        return 0
    _print_relinked(made)
    return 0


def _kernels(
    patches: list[base.Patch], wheel_: wheel.Wheel, options: argparse.Namespace
) -> tuple[list[base.Patch], Nvcc | None]:
    """The patches that are built, and the compiler of their kernels."""
    how: dict[str, Any] = {"nvcc": options.nvcc, "architectures": options.architectures}
    if options.tree:  # a tree is built as it is
        return patches, kernels.find(wheel_, **how) if options.nvcc else None
    chosen = kernels.buildable(patches, wheel_, asked=options.patches, **how)
    if note := chosen.note():
        print(note, file=sys.stderr)
    return chosen.patches, chosen.nvcc


def _print_relinked(made: relink.Relinked) -> None:
    facts = made.facts
    needs = ", ".join(
        f"{family} {version}" for family, version in facts["needs"].items() if version
    )
    magma = facts["magma"]
    lacking = len(magma["lacking"])
    magma_text = "the wheel's" if magma["mode"] == "wheel" else "off"
    if lacking:
        magma_text += f" ({lacking} of its functions are not in this wheel and raise when called)"
    print(f"{made.library}")
    print(
        f"  torch {facts['torch']}, {len(facts['patches'])} patches, "
        f"{facts['library']['bytes'] / 1e6:.2f} MB"
    )
    print(
        f"  ours: {', '.join(facts['entries']) or 'none'}; the other "
        f"{15 - len(facts['entries'])} entries "
        "stay the wheel's"
    )
    print(f"  MAGMA: {magma_text}; needs {needs}")
    if own := facts.get("kernels"):
        names = ", ".join(f"sm_{name}" for name in own["architectures"])
        newer = own["nvcc"].partition(".")[0] != facts["cuda"].partition(".")[0]
        driver = f"; they need a driver for CUDA {own['nvcc']}" if newer else ""
        print(f"  kernels for {names} by nvcc {own['nvcc']}{driver}")
    for name, how in facts["headers"].items():
        print(f"  {name}: {how}")
    print(f"  {'built' if made.built else 'up to date'} in {seconds_text(made.seconds)}")


if __name__ == "__main__":
    run_cli(main)
