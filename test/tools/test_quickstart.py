"""tools/quickstart: the plan, the refusals and the texts of its steps, without downloading."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

from aotools import env, quickstart, quickstart_run
from aotools.env import ROOT, UserError
from aotools.quickstart import Item
from aten_overrides import _stock_rule
from aten_overrides._select import Facts, Problem


def test_plan_says_what_is_missing_and_what_is_there() -> None:
    needed = [
        Item("packages", 110e6, 350e6, Path("/r/.venv"), True),
        Item("stock wheel: torch 2.6.0+cu124", 2.8e9, 4.8e9, Path("/c/wheels"), False),
        Item("source", 28e6, 40e6, Path("/c/source/v2.6.0"), False),
    ]
    assert_expected_inline(
        quickstart.plan_text(needed),
        """\
                                download  on disk  kept in
packages                        is there   350 MB  /r/.venv
stock wheel: torch 2.6.0+cu124    2.8 GB   4.8 GB  /c/wheels
source                             28 MB    40 MB  /c/source/v2.6.0
To download now: 2.8 GB; 4.8 GB on disk when unpacked.""",
    )


def test_plan_with_everything_there() -> None:
    needed = [Item("packages", 110e6, 350e6, Path("/r/.venv"), True)]
    assert quickstart.plan_text(needed).endswith("Nothing to download.")


def dry_run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "ATEN_OVERRIDES_CACHE": str(tmp_path / "cache")}
    return subprocess.run(
        [ROOT / "tools/quickstart", "--dry-run", *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_dry_run_tells_and_does_nothing(tmp_path: Path) -> None:
    done = dry_run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"torch 2\.6\.0\+cu124 and its CUDA packages +2\.8 GB +4\.8 GB", done.stdout)
    assert "To download now: 2.8 GB; 4.8 GB on disk" in done.stdout
    assert str(tmp_path / "cache/wheels") in done.stdout
    assert "apply the series patches/v2.6.0 to the source, without fuzz" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_dry_run_with_the_users_torch_downloads_no_wheel(tmp_path: Path) -> None:
    done = dry_run(tmp_path, "--torch", "existing")
    assert done.returncode == 0, done.stderr
    assert "stock wheel" not in done.stdout
    assert "against your own torch" in done.stdout


def test_unknown_torch(tmp_path: Path) -> None:
    done = dry_run(tmp_path, "--torch", "1.13.1")
    assert done.returncode == 2
    assert done.stderr == (
        "error: torch 1.13.1 is not among the versions this project pins: 2.6.0, 2.11.0 "
        "(see tools/requirements)\n"
    )


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"missing .*: git, g\+\+.*apt-get install git g\+\+"):
        quickstart.check_machine()
    for name in ("git", "g++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    quickstart.check_machine()
    monkeypatch.setenv("CXX", "ccache clang++")
    with pytest.raises(UserError, match="missing on this machine: ccache"):
        quickstart.check_machine()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, (None, None)),
        (["apt"], ("apt", None)),
        (["git"], ("git", None)),
        (["tarball", "x.tar"], ("tarball", Path("x.tar"))),
        (["dir", "x"], ("dir", Path("x"))),
    ],
)
def test_source_option(given: list[str] | None, meant: tuple[str | None, Path | None]) -> None:
    assert quickstart.source_option(given) == meant


@pytest.mark.parametrize("given", [["tarball"], ["apt", "x"], ["svn"], ["dir", "x", "y"]])
def test_source_option_refused(given: list[str]) -> None:
    with pytest.raises(UserError, match="--source takes one of"):
        quickstart.source_option(given)


def test_a_wrong_source_is_told_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for words in (["ftp"], ["dir", str(tmp_path / "none")]):
        monkeypatch.setattr(sys, "argv", ["quickstart", "--source", *words])
        with pytest.raises(UserError, match="--source"):
            quickstart.main()
    assert capsys.readouterr().out == ""


def test_entries_text() -> None:
    entries = [
        {"name": "lu_factor", "owner": "ours", "file": "/b/ours.so"},
        {"name": "svd", "owner": "wheel", "file": "/w/theirs.so"},
        {"name": "geqrf", "owner": "ours", "file": "/b/ours.so"},
    ]
    assert_expected_inline(
        quickstart_run.entries_text(entries),
        """\
lu_factor              ours
svd                    wheel
geqrf                  ours
2 of 3 ours, in /b/ours.so
1 of 3 wheel, in /w/theirs.so""",
    )


def fake_site(folder: Path, stated: bytes, found: bytes) -> Path:
    (folder / "torch/lib").mkdir(parents=True)
    (folder / "torch/lib/libtorch_cuda_linalg.so").write_bytes(found)
    digest = base64.urlsafe_b64encode(hashlib.sha256(stated).digest()).decode().rstrip("=")
    (folder / "torch-2.6.0.dist-info").mkdir()
    (folder / "torch-2.6.0.dist-info/RECORD").write_text(
        f"torch/lib/libtorch_cuda_linalg.so.old,sha256=x,1\n"
        f"torch/lib/libtorch_cuda_linalg.so,sha256={digest},{len(stated)}\n"
    )
    return folder


def test_an_untouched_wheel(tmp_path: Path) -> None:
    assert "is untouched" in quickstart_run.untouched_text(fake_site(tmp_path, b"a", b"a"))


def test_a_changed_wheel_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not the file that torch's own RECORD describes"):
        quickstart_run.untouched_text(fake_site(tmp_path, b"a", b"b"))


def test_a_torch_without_a_record(tmp_path: Path) -> None:
    site = fake_site(tmp_path, b"a", b"a")
    (site / "torch-2.6.0.dist-info/RECORD").unlink()
    assert "states no checksum" in quickstart_run.untouched_text(site)


# --- the choices ---


@pytest.mark.parametrize(
    ("version", "known"),
    [("2.5.1", False), ("2.6.0", True), ("2.11.0", True), ("2.12.1", True), ("2.13.0", False)],
)
def test_stock_rule_is_of_some_versions(version: str, known: bool) -> None:
    assert quickstart_run.rule_known(version) is known


@pytest.mark.source
def test_stock_rule_is_the_sources() -> None:
    """The conditions of lu_factor in PyTorch's source, evaluated, against the rule shown here."""
    path = "aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp"
    trees = list((env.cache_dir() / "source/v2.6.0").glob(f"tree-*/{path}"))
    assert trees
    text = trees[0].read_text(encoding="utf-8")
    body = text[text.index("static void lu_factor(const Tensor& input") :]
    body = body[: body.index("\n}\n")]
    looped, not_magma = (
        match.replace("||", " or ").replace("&&", " and ")
        for match in re.findall(r"^    if \((.*m.*n.*)\) \{$", body, re.M)
    )
    for batch, m, n in itertools.product(
        (1, 2, 16, 17, 64), *[(8, 16, 17, 128, 129, 511, 512)] * 2
    ):
        names = {"batch_size": batch, "m": m, "n": n, "looped_correct": True}
        family = "looped_cusolver" if eval(looped, names) else "batched_cublas"
        for magma, preference in itertools.product((False, True), ("default", "cusolver")):
            use_magma = magma and preference == "default" and not eval(not_magma, names)
            rule = _stock_rule.lu_factor(Problem(batch, m, n), preference, Facts(stock=magma))
            assert rule == ("stock" if use_magma else family), (batch, m, n, preference, magma)


def test_choices_end_the_loop_at_512_and_keep_both_sides_alike() -> None:
    cusolver, _, default = quickstart_run.choices_text(magma=True).partition("preference 'default'")
    rows = {line.split()[0]: line.split()[1:] for line in cusolver.splitlines() if "ed" in line}
    below, at = (rows["256"][quickstart_run.SIZES.index(n)] for n in (511, 512))
    assert at.startswith("looped>")
    assert below.rpartition(">")[2] == at.rpartition(">")[2]
    assert "MAGMA" not in cusolver
    assert "MAGMA" in default


def test_choices_of_a_torch_with_another_rule_show_no_before() -> None:
    text = quickstart_run.choices_text(magma=False, before=False)
    assert ">" not in text
    assert "after only" in text


# --- the user's own torch ---


def fake_python(folder: Path, site: Path) -> Path:
    """An interpreter whose torch lies in `site`."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def own_torch(folder: Path, tag: str) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("")
    (folder / f"torch/_C.{tag}-x86_64-linux-gnu.so").write_text("")
    return folder


MINE = f"cpython-{env.python_name().replace('.', '')}"


def test_existing_is_the_torch_of_the_users_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = own_torch(tmp_path / "site", MINE)
    monkeypatch.setenv("AOTOOLS_USER_PYTHON", str(fake_python(tmp_path, site)))
    monkeypatch.delenv("PYTHON", raising=False)
    assert quickstart_run.find_site("existing", venv=True) == site
    assert "PYTHON" not in os.environ


def test_existing_of_another_python_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = own_torch(tmp_path / "site", "cpython-39")
    monkeypatch.setenv("AOTOOLS_USER_PYTHON", str(fake_python(tmp_path, site)))
    with pytest.raises(UserError, match=r"for another Python \(_C\.cpython-39-.*PYTHON="):
        quickstart_run.find_site("existing", venv=True)


@pytest.mark.wheel
@pytest.mark.source
def test_the_torch_of_an_active_virtual_environment(tmp_path: Path) -> None:
    tree = env.wheel_tree("2.11.0", download=False)
    active = tmp_path / "active"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", active], check=True)
    site = active / "lib" / f"python{env.python_name()}" / "site-packages"
    (site / "torch.pth").write_text(f"{tree}\n")
    hidden = ("PYTHON", "AOTOOLS_USER")
    variables = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    variables |= {"PATH": f"{active / 'bin'}:{variables['PATH']}", "VIRTUAL_ENV": str(active)}
    done = subprocess.run(
        [ROOT / "tools/quickstart", "--torch", "existing", "--no-measure"],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "== library for torch 2.11.0+cu130" in done.stdout
    assert f"wheel, in {tree}/torch/lib/libtorch_cuda_linalg.so" in done.stdout
    assert re.search(r"^   lu_factor +ours$", done.stdout, re.M)
    assert "after restore() all 15 entries are the wheel's again" in done.stdout


def test_no_venv_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    quickstart.check_packages()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"--no-venv: .* lacks matplotlib"):
        quickstart.check_packages()


@pytest.mark.wheel
@pytest.mark.source
def test_the_whole_of_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "tools/quickstart", "--no-measure"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing to download." in done.stdout
    assert "patches applied without fuzz" in done.stdout
    assert re.search(r"^   lu_factor +ours$", done.stdout, re.M)
    assert re.search(r"^   linalg_eig +wheel$", done.stdout, re.M)
    assert "is untouched" in done.stdout
    assert "after restore() all 15 entries are the wheel's again" in done.stdout
