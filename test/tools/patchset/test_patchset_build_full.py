"""`build-full` on a stand-in for a PyTorch checkout, whose setup.py makes a wheel in no time."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_base import FakeBase, write_files

from aotools.env import UserError
from aotools.patchset import base as bases
from aotools.patchset import build_full, cli, git, onto
from aotools.patchset.base import LINALG, Base, Change, Patch

SETUP = """
import json, os, pathlib, sys, zipfile
import beside
here = pathlib.Path.cwd()
(here / "seen.json").write_text(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}))
print("-- configured with", os.environ["MAX_JOBS"], "jobs")
if (here / "fail").exists():
    print("error: no such header"); sys.exit(3)
if "bdist_wheel" in sys.argv:
    name = f"torch-{os.environ['PYTORCH_BUILD_VERSION']}-cp311-cp311-linux_x86_64.whl"
    folder = pathlib.Path(sys.argv[sys.argv.index("--dist-dir") + 1])
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("torch/lib/libtorch_cuda_linalg.so", b"TORCH_LINALG_STREAMS")
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter with the packages that are asked for; nvcc, cmake and ninja beside it."""
    folder = tmp_path / "bin"
    packages = {f"site/{name}.py": "" for name in (*build_full.PACKAGES, "wheel")}
    write_files(tmp_path, packages)
    for name, said in (
        ("nvcc", "release 12.4, V12.4.131"),
        ("cmake", "3.31.1"),
        ("ninja", "1.11.1"),
    ):
        write_files(
            folder, {name: f"#!/bin/sh\necho '{name} {said}'\necho $* >> {folder}/{name}.log\n"}
        )
        (folder / name).chmod(0o755)
    script = f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} -S "$@"\n'
    write_files(folder, {"python3": script})
    (folder / "python3").chmod(0o755)
    return folder / "python3"


@pytest.fixture
def tree(fake: FakeBase, tmp_path: Path) -> Path:
    """A checkout with the series applied and its submodule there."""
    made = Path(shutil.copytree(fake.source, tmp_path / "pytorch"))
    files = {"setup.py": SETUP, "beside.py": "", "version.txt": "0.1a0\n"}
    files["third_party/lib/CMakeLists.txt"] = "\n"
    modules = '[submodule "lib"]\n\tpath = third_party/lib\n\turl = https://example.org/lib\n'
    write_files(made, files | {".gitmodules": modules})
    git.init(made)
    git.git(made, "add", "--all")
    git.git(made, "commit", "-qm", "v0.1", extra=git.BASE_AUTHOR)
    base = fake.load()
    onto.apply_onto(base, fake.source, base.patches(), made)
    return made


Run = Callable[..., int]


@pytest.fixture
def run(fake: FakeBase, tree: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("CUDA_HOME", str(python.parent.parent / "nowhere"))

    def call(*more: str | Path) -> int:
        words = ["build-full", "--base", "v0.1", "--patches-root", fake.root, "--tree", tree]
        words += ["--python", python, "--out", tree.with_name("out"), *more]
        monkeypatch.setattr(sys, "argv", ["patchset", *map(str, words)])
        return cli.main()

    return call


def test_a_wheel_with_its_facts(
    run: Run, tree: Path, fake: FakeBase, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--max-jobs", "3", "--arch-list", "9.0", "--set", "USE_FLASH_ATTENTION=0") == 0
    out = tree.with_name("out")
    wheels = list(out.glob("*.whl"))
    version = build_full.version_of(fake.load(), fake.load().patches())
    assert version.startswith("0.1+aten.2.")
    assert [wheel.name for wheel in wheels] == [f"torch-{version}-cp311-cp311-linux_x86_64.whl"]
    seen = json.loads((tree / "seen.json").read_text())
    assert seen["argv"][:2] == ["bdist_wheel", "--dist-dir"]
    wanted = {"USE_CUDA": "1", "USE_MAGMA": "0", "MAX_JOBS": "3", "TORCH_CUDA_ARCH_LIST": "9.0"}
    wanted |= {"PYTORCH_BUILD_VERSION": version, "USE_FLASH_ATTENTION": "0", "BUILD_TEST": "0"}
    assert {name: seen["env"].get(name) for name in wanted} == wanted
    facts = json.loads((out / build_full.FACTS).read_text())
    assert facts["tools"]["nvcc"] == "12.4.131" and facts["tools"]["cmake"] == "3.31.1"
    assert [one["name"] for one in facts["patches"]] == fake.load().series()
    assert facts["wheel"]["linalg_library"] == "torch/lib/libtorch_cuda_linalg.so"
    assert "-- configured with 3 jobs" in capsys.readouterr().out
    assert "-- configured with 3 jobs" in (out / "wheel.log").read_text()
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def test_the_build_gets_the_callers_environment(
    run: Run, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As tools/python.sh sets them for our own Python; setup.py imports what lies beside it.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONPATH", "/ours/tools:/ours")
    monkeypatch.setenv("AOTOOLS_USER_PYTHONPATH", "/theirs")
    assert run("--configure-only") == 0
    seen = json.loads((tree / "seen.json").read_text())["env"]
    assert "PYTHONSAFEPATH" not in seen
    assert build_full.users_environment()["PYTHONPATH"] == "/theirs"
    monkeypatch.delenv("AOTOOLS_USER_PYTHONPATH")
    assert "PYTHONPATH" not in build_full.users_environment()


def test_where_a_tree_is_in_the_series(fake: FakeBase, tree: Path) -> None:
    base = fake.load()
    patches = base.patches()
    assert build_full.position(base, patches, tree) == 2
    release = tree.with_name("release")
    shutil.copytree(fake.source, release)
    assert build_full.position(base, patches, release) == 0
    onto.apply_onto(base, fake.source, base.upto("first-topic"), release)
    assert build_full.position(base, patches, release) == 1
    notes = release / "docs/notes.rst"  # only the second touches it
    before = notes.read_text()
    notes.write_text(f"{before}of the distribution\n")
    assert build_full.position(base, patches, release) == 1
    notes.write_text(f"{before}more  \n")  # as the second leaves it
    with pytest.raises(UserError, match="is neither"):
        build_full.position(base, patches, release)


def test_only_a_part(run: Run, tree: Path, python: Path) -> None:
    assert run("--configure-only") == 0
    assert json.loads((tree / "seen.json").read_text())["argv"] == ["build", "--cmake-only"]
    assert run("--linalg-only") == 0
    built = (python.parent / "cmake.log").read_text().splitlines()
    assert built[-1] == "--build build --target torch_cuda_linalg"
    assert not list(tree.with_name("out").glob("*.whl"))


def test_dry_run_builds_nothing(run: Run, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dry-run", "--cpu") == 0
    assert not tree.with_name("out").exists() and not (tree / "seen.json").exists()
    said = capsys.readouterr().out
    assert "would run: " in said and "setup.py bdist_wheel" in said and "USE_CUDA=0" in said
    assert "v0.1 with 2 of 2 patches" in said


def test_a_failing_build_tells_its_end_and_leaves_no_wheel(run: Run, tree: Path) -> None:
    assert run() == 0
    before = {path.name: path.stat().st_mtime_ns for path in tree.with_name("out").glob("*.whl")}
    write_files(tree, {"fail": ""})
    with pytest.raises(UserError, match=r"failed with 3; [\s\S]*error: no such header"):
        run()
    after = {path.name: path.stat().st_mtime_ns for path in tree.with_name("out").glob("*.whl")}
    assert after == before  # the wheel of before is still there


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda tree: shutil.rmtree(tree / "third_party/lib"),
            "1 submodules are empty.*--recursive",
        ),
        (lambda tree: (tree / ".gitmodules").unlink(), "holds no third_party sources"),
        (lambda tree: (tree / "setup.py").unlink(), "is no PyTorch checkout"),
        (lambda tree: write_files(tree, {f"{LINALG}/Solver.cpp": "x\n"}), "neither v0.1 nor v0.1"),
        (lambda tree: git.git(tree, "reset", "-q", "--hard", "HEAD~2"), "none of the series"),
    ],
)
def test_trees_that_are_refused(
    run: Run, tree: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(tree)
    with pytest.raises(UserError, match=said):
        run()
    assert not (tree / "seen.json").exists()


def test_a_distributions_source_has_no_submodules(run: Run, tree: Path) -> None:
    (tree / ".gitmodules").unlink()
    shutil.rmtree(tree / "third_party")
    assert run("--system-libraries", "--configure-only") == 0
    assert json.loads((tree / "seen.json").read_text())["argv"] == ["build", "--cmake-only"]


def test_half_a_series_and_none(run: Run, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git.git(tree, "reset", "-q", "--hard", "HEAD~1")
    assert run() == 0
    assert "v0.1 with 1 of 2 patches" in capsys.readouterr().out
    git.git(tree, "reset", "-q", "--hard", "HEAD~1")
    assert run("--unpatched") == 0
    assert any(
        path.name.startswith("torch-0.1+aten.unpatched") for path in tree.with_name("out").iterdir()
    )


def test_everything_that_is_missing_is_named_at_once(
    run: Run, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (python.parent / "nvcc").unlink()
    (python.parent.parent / "site/yaml.py").unlink()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(UserError) as told:
        run()
    assert "nvcc" in str(told.value) and "docker/requirements/build.txt" in str(told.value)
    write_files(python.parent.parent, {"site/yaml.py": ""})
    with pytest.raises(UserError, match="write NAME=VALUE"):
        run("--cpu", "--set", "flash")
    with pytest.raises(UserError, match="does not run"):
        run("--python", python.with_name("nopython"))


def test_jobs_and_memory(tmp_path: Path) -> None:
    assert build_full.jobs(64, 512) == 64
    assert build_full.jobs(64, 32) == 8
    assert build_full.jobs(2, 1) == 1
    write_files(
        tmp_path, {"proc/meminfo": "MemTotal:       16777216 kB\n", "cg/memory.max": "max\n"}
    )
    assert build_full.memory_gib(tmp_path / "proc", tmp_path / "cg") == 16
    write_files(tmp_path, {"cg/memory.max": str(4 * 2**30)})
    assert build_full.memory_gib(tmp_path / "proc", tmp_path / "cg") == 4


def test_a_wheel_without_the_series_code_is_refused(fake: FakeBase, tmp_path: Path) -> None:
    base, wheel = fake.load(), tmp_path / "torch.whl"
    change = Change(f"{LINALG}/CUDASolverLanes.cpp", None, "1" * 40)
    patch = Patch("lanes.patch", tmp_path / "x", "Lanes", {}, (change,), ())
    for data, good in ((b"... TORCH_LINALG_STREAMS ...", True), (b"stock", False)):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("torch/lib/libtorch_cuda_linalg.so", data)
        if good:
            assert build_full.inspect(wheel, base, [patch])["name"] == "torch.whl"
        else:
            with pytest.raises(UserError, match="does not hold the series' code"):
                build_full.inspect(wheel, base, [patch])
    wheel.write_bytes(b"no zip")
    with pytest.raises(UserError, match="is no wheel"):
        build_full.inspect(wheel, base, [patch])


def test_the_real_series_leaves_the_text_that_is_looked_for() -> None:
    real: Base = bases.load("v2.6.0")
    texts = [patch.path.read_text(encoding="utf-8") for patch in real.patches()]
    assert any("+++ b/" + f"{LINALG}/CUDASolverLanes.cpp" in text for text in texts)
    assert any('"TORCH_LINALG_STREAMS"' in text for text in texts)
