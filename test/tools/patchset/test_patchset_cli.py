"""The command line of tools/patchset, each command on the fake base."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import expecttest
import fake_base
import pytest
import toy_wheel
from fake_base import FakeBase

from aotools.env import ROOT, UserError
from aotools.patchset import cli
from aotools.patchset.base import LINALG


def run(fake: FakeBase | Path, monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    root = fake.root if isinstance(fake, FakeBase) else fake
    options = ["--base", "v0.1", "--patches-root", str(root)]
    words = [str(arguments[0]), *options, *map(str, arguments[1:])]
    monkeypatch.setattr(sys, "argv", ["patchset", *words])
    return cli.main()


def tidy(text: str, *folders: Path) -> str:
    for number, folder in enumerate(folders):
        text = text.replace(str(folder), f"<{number}>")
    return re.sub(r"tree-[0-9a-f]{12}", "tree-<key>", text)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.parser().parse_args(["--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert all(name in text for name in ("fetch", "apply", "check", "relink"))
    for name in ("fetch", "apply", "check", "relink"):
        with pytest.raises(SystemExit):
            cli.parser().parse_args([name, "--help"])
        assert "--dry-run" in capsys.readouterr().out


def test_fetch_and_apply_say_what_they_did(
    fake: FakeBase,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ("--source", "dir", fake.source)
    tree = tmp_path / "tree"
    assert run(fake, monkeypatch, "fetch", *source, "--dry-run") == 0
    assert not cache.exists()
    assert run(fake, monkeypatch, "fetch", *source) == 0
    assert run(fake, monkeypatch, "fetch", "--dry-run") == 0
    assert run(fake, monkeypatch, "apply", "--to", tree, "--dry-run") == 0
    assert not tree.exists()
    for _ in range(2):
        assert run(fake, monkeypatch, "apply", "--to", tree) == 0
    expecttest.assert_expected_inline(
        tidy(capsys.readouterr().out, cache, fake.source, tree),
        """\
would fetch 3 files of PyTorch v0.1 into <0>/source/v0.1/tree-<key>: dir <1>
3 files of PyTorch v0.1, verified by their blob ids: <0>/source/v0.1/tree-<key>
nothing to do: <0>/source/v0.1/tree-<key> is complete
would make <2>: PyTorch v0.1 and 2 patches
  first-topic.patch: [CUDA] Change the third line
  second-topic.patch: Add a header
<2>: v0.1 with 2 patches
  first-topic.patch: [CUDA] Change the third line
  second-topic.patch: Add a header
<2>: v0.1 with 2 patches (was there already)
  first-topic.patch: [CUDA] Change the third line
  second-topic.patch: Add a header
""",
    )


def test_apply_onto(
    fake: FakeBase,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = fake_base.checkout(fake.source, tmp_path / "mine")
    options = ("--onto", target, "--source", "dir", fake.source)
    assert run(fake, monkeypatch, "apply", *options, "--upto", "first-topic") == 0
    with pytest.raises(UserError, match="half applied"):
        run(fake, monkeypatch, "apply", *options)
    assert run(fake, monkeypatch, "apply", *options, "--continue") == 0
    assert capsys.readouterr().out.splitlines() == [
        "applied first-topic.patch: [CUDA] Change the third line",
        "applied second-topic.patch: Add a header",
    ]


def test_check(
    fake: FakeBase,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("aotools.patchset.check.OWN_SOURCES", fake.own)
    assert run(fake, monkeypatch, "check", "--fast", "--dry-run") == 0
    assert "applies without fuzz" in capsys.readouterr().out
    assert run(fake, monkeypatch, "check", "--dry-run") == 0
    assert "after second-topic.patch: Module.cpp" in capsys.readouterr().out
    assert run(fake, monkeypatch, "check", "--update-base", "--source", "dir", fake.source) == 0
    assert capsys.readouterr().out.endswith("base.toml is up to date\n")
    with pytest.raises(UserError, match="--update-base reads the pinned tarball or"):
        run(fake, monkeypatch, "check", "--update-base", "--source", "git")


def test_relink(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = toy_wheel.make(tmp_path / "site", lacking=("magma_sgesdd",))
    _, source = toy_wheel.toy_base(tmp_path)
    root, out = tmp_path / "patches", tmp_path / "out"
    options = ("--wheel", site, "--tree", source, "--out", out)
    assert run(root, monkeypatch, "relink", *options, "--dry-run") == 0
    assert not out.exists()
    assert run(root, monkeypatch, "relink", *options) == 0
    said = tidy(capsys.readouterr().out, out, source, site)
    said = re.sub(r"\d+\.\d+ (s|MB)|\d+ at once|GLIBC.*", "<n>", said)
    expecttest.assert_expected_inline(
        "\n".join(row for row in said.splitlines() if ".cpp " not in row) + "\n",
        """\
would build the tree <1> against torch <2> into <0>
entries of its own: cholesky, lu_factor, lu_solve
compiling 3 sources, <n>
<0>/libtorch_cuda_linalg_patched.so
  torch 0.1+cu124, 0 patches, <n>
  ours: cholesky, lu_factor, lu_solve; the other 12 entries stay the wheel's
  MAGMA: the wheel's (1 of its functions are not in this wheel and raise when called); needs <n>
  built in <n>
""",
    )
    assert run(root, monkeypatch, "relink", *options, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["path"] == str(out / "libtorch_cuda_linalg_patched.so")
    assert record["magma"]["lacking"] == ["magma_sgesdd"]


@pytest.mark.parametrize(
    ("arguments", "magma", "name"),
    [
        ((), True, "patched"),
        ((), False, "patched-no-magma"),
        (("--patches", "none"), True, "unpatched"),
        (("--patches", "first-topic"), True, "upto-first-topic"),
        (("--tree", "x"), True, "tree"),
        # Other entries are another library: it must not take the place of the first.
        (("--entries", "all"), True, "patched-all"),
        (("--entries", "svd,lu_factor"), False, "patched-only-lu_factor+svd-no-magma"),
        (("--entries", "lu_factor,svd"), False, "patched-only-lu_factor+svd-no-magma"),
        (("--entries", "cholesky"), True, "patched"),
        (("--tree", "x", "--entries", "svd"), True, "tree-only-svd"),
    ],
)
def test_each_library_has_a_folder_of_its_own(
    fake: FakeBase, arguments: tuple[str, ...], magma: bool, name: str
) -> None:
    options = cli.parser().parse_args(["relink", *arguments])
    base = dataclasses.replace(fake.load(), entries=("cholesky",))
    patches = base.upto(options.patches)
    assert cli.label(base, options, patches, magma=magma) == name


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("fetch", "--source", "ftp"), "--source takes one of"),
        (("fetch", "--source", "dir"), "--source takes one of"),
        (("fetch", "--source", "apt", "x"), "--source takes one of"),
        (("apply", "--continue"), "--continue belongs to --onto"),
        (("apply", "--upto", "third"), "third is not in"),
        (("relink", "--patches", "third"), "third is not in"),
        (("relink", "--entries", "lu"), "no linalg entry is called lu"),
        (("relink", "--tree", "/nowhere"), "is not a PyTorch source tree"),
    ],
)
def test_bad_requests(
    fake: FakeBase,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    rest = arguments
    if arguments[0] == "relink" and "--entries" in arguments:
        rest = (*arguments, "--dry-run")
    with pytest.raises(UserError, match=problem):
        run(fake, monkeypatch, *rest)


def test_the_entry_reports_one_clear_line_and_code_2(fake: FakeBase, cache: Path) -> None:
    command = [sys.executable, "-m", "aotools.patchset.cli", "fetch", "--base", "v9.9"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no base 'v9.9' in ")
    assert len(done.stderr.splitlines()) == 1
    assert LINALG not in done.stderr
