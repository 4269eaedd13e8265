"""The cache folder, .venv and the wheel trees: made by the real pip from tiny wheels on disk."""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from aotools import env, env_base, env_pip
from aotools.env import UserError

SITE = f"lib/python{env.python_name()}/site-packages"


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Writes a pure Python wheel that pip takes."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    everything = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in everything.items():
            archive.writestr(path, text)


class Project:
    """A checkout with pinned files of its own, a cache, and an index made of local wheels."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.cache = folder / "cache"
        self.wheels = folder / "index"
        self.wheels.mkdir()
        (self.root / "tools/requirements").mkdir(parents=True)
        self.pin("torch-9.9.0", "torch==9.9.0", expect="# expect: torch 9.9.0+cu999\n")
        self.pin("tools", "tiny==1.0")
        self.torch("9.9.0+cu999")
        make_wheel(self.wheels, "tiny", "1.0", {"tiny.py": "version = 1\n"})

    def pin(self, name: str, pins: str, expect: str = "") -> None:
        """Writes a requirements file."""
        text = f"# size: download 0.001 GB, disk 0.001 GB\n{expect}{pins}\n"
        (self.root / f"tools/requirements/{name}.txt").write_text(text)

    def torch(self, states: str) -> None:
        """Puts torch 9.9.0 into the index; its version.py states what is asked for."""
        text = f"__version__ = '{states}'\n"
        # With an __init__.py it hides another torch further down the path, as a real one does.
        files = {"torch/__init__.py": "", "torch/version.py": text}
        make_wheel(self.wheels, "torch", "9.9.0", files)

    @property
    def tree(self) -> Path:
        return env.tree_path("9.9.0")

    def leftovers(self) -> list[str]:
        """What lies beside the tree, its lock left out."""
        return sorted(p.name for p in self.tree.parent.iterdir() if not p.name.endswith(".lock"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    for module in (env, env_base):
        monkeypatch.setattr(module, "ROOT", made.root)
    monkeypatch.setattr(env, "VENV", made.root / ".venv")
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(made.cache))
    # No network, and none of this machine's own settings.
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheels))
    return made


def count_pip(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the pip calls from here on."""
    calls: list[int] = []
    real = env_pip.pip_install

    def counted(*arguments: object, **options: object) -> None:
        calls.append(1)
        real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(env, "pip_install", counted)
    return calls


# --- the cache folder and the pinned files ---


def test_cache_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ATEN_OVERRIDES_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert env.cache_dir() == tmp_path / ".cache/aten-overrides"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert env.cache_dir() == Path("/x/aten-overrides")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says its standard
    assert env.cache_dir() == tmp_path / ".cache/aten-overrides"
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", "~/own")
    assert env.cache_dir() == tmp_path / "own"


def test_every_requirement_is_pinned_exactly() -> None:
    for path in (env.ROOT / "tools/requirements").rglob("*.txt"):
        assert env_base.requirements(path.stem).path == path
        assert env_base.requirements(path.stem).download_bytes > 0
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                name, _, version = line.partition(";")[0].strip().partition("==")
                version = version.removeprefix("=")  # === is exact about the local part, too
                assert name and version[0].isdigit() and "*" not in version, f"{path}: {line}"


def test_venv_holds_what_its_packages_need() -> None:
    """They are installed with --no-deps. `pip check` would look at the torch wheel's tree too."""
    found = {
        canonicalize_name(one.name): one
        for one in importlib.metadata.distributions(path=[str(env.venv_site())])
    }
    pinned = [
        canonicalize_name(line.partition("==")[0])
        for line in (env.ROOT / "tools/requirements/tools.txt").read_text().splitlines()
        if line and not line.startswith("#") and ";" not in line
    ]
    for name in pinned:
        for text in found[name].requires or []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                version = found[canonicalize_name(need.name)].version
                assert need.specifier.contains(version, prereleases=True), f"{name} needs {text}"


def test_comments_do_not_change_the_digest(project: Project) -> None:
    before = env_base.requirements("torch-9.9.0").digest
    path = project.root / "tools/requirements/torch-9.9.0.txt"
    path.write_text(f"# a word\n{path.read_text()}\n")
    assert env_base.requirements("torch-9.9.0").digest == before
    project.pin("torch-9.9.0", "torch==9.9.1")
    assert env_base.requirements("torch-9.9.0").digest != before


def test_unknown_version(project: Project) -> None:
    with pytest.raises(UserError, match=r"torch 1\.2\.3 is not among .*: 9\.9\.0"):
        env.wheel_tree("1.2.3")


# --- wheel trees ---


def test_tree_is_made_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_pip(monkeypatch)
    tree = env.wheel_tree("9.9.0")
    assert tree == project.tree
    assert (tree / "torch/version.py").is_file()
    assert env.wheel_tree("9.9.0") == tree
    assert len(calls) == 1
    assert project.leftovers() == [tree.name]
    code = "import torch.version; print(torch.version.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env.tree_environment(tree), capture_output=True, text=True
    )
    assert done.stdout.strip() == str(tree / "torch/version.py")


def test_tree_is_not_fetched_when_told_so(project: Project) -> None:
    with pytest.raises(UserError, match="is not in the cache"):
        env.wheel_tree("9.9.0", download=False)


def test_new_pins_replace_the_tree(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    env.wheel_tree("9.9.0")
    calls = count_pip(monkeypatch)
    expect = "# expect: torch 9.9.0+cu999\n"
    project.pin("torch-9.9.0", "torch==9.9.0\ntiny==1.0", expect=expect)
    tree = env.wheel_tree("9.9.0")
    assert (tree / "tiny.py").is_file()
    assert len(calls) == 1
    assert project.leftovers() == [tree.name]


def test_a_failing_replacement_keeps_the_old_tree(project: Project) -> None:
    tree = env.wheel_tree("9.9.0")
    project.pin("torch-9.9.0", "torch==9.9.0\nabsent==1.0")
    with pytest.raises(UserError, match="absent"):
        env.wheel_tree("9.9.0")
    assert (tree / "torch/version.py").is_file()
    assert project.leftovers() == [tree.name]


def test_another_build_of_torch_is_refused(project: Project) -> None:
    project.torch("9.9.0+cpu")
    with pytest.raises(UserError, match=r"served torch 9\.9\.0\+cpu, but 9\.9\.0\+cu999 is needed"):
        env.wheel_tree("9.9.0")
    assert project.leftovers() == []


def test_interrupted_while_installing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(env, "pip_install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            env.wheel_tree("9.9.0")
    assert project.leftovers() == []
    assert env.wheel_tree("9.9.0").is_dir()


def test_what_a_killed_run_left_is_removed(project: Project) -> None:
    left = project.tree.parent / f".tmp-{project.tree.name}-abc/tree"
    left.mkdir(parents=True)
    env.wheel_tree("9.9.0")
    assert project.leftovers() == [project.tree.name]


def test_a_tree_without_its_stamp_is_made_again(project: Project) -> None:
    tree = env.wheel_tree("9.9.0")
    (tree / env_base.STAMP).unlink()
    (tree / "torch/version.py").unlink()
    env.wheel_tree("9.9.0")
    assert (tree / "torch/version.py").is_file()


def test_full_disk_is_told_before_anything_is_fetched(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_pip(monkeypatch)
    usage = type("Usage", (), {"free": 1_500_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"1\.5 MB free, 2\.0 MB are needed.*ATEN_OVERRIDES_CACHE"):
        env.wheel_tree("9.9.0")
    assert calls == []


def test_no_network(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nothing listens there
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(UserError, match="could not reach its package index for torch 9"):
        env.wheel_tree("9.9.0")
    assert project.leftovers() == []


def test_a_users_constraint_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "constraints.txt").write_text("torch<9\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    with pytest.raises(UserError, match=r"(?s)conflict.*pip config list"):
        env.wheel_tree("9.9.0")


def test_a_users_target_and_user_settings_do_not_divert_pip(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    assert (env.wheel_tree("9.9.0") / "torch/version.py").is_file()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_in_the_caches_place(project: Project) -> None:
    project.cache.write_text("")
    with pytest.raises(UserError, match=r"cannot make the folder .*ATEN_OVERRIDES_CACHE"):
        env.wheel_tree("9.9.0")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk filled up while X"),
        ("WARNING: NewConnectionError('refused')\nERROR: No matching", "could not reach"),
        ("t ERROR: Hash mismatch", "It said:\n  Hash mismatch"),
        ("", "pip could not install X"),
    ],
)
def test_pip_problem(log: str, said: str) -> None:
    assert said in env_pip.pip_problem(log, "X")


# --- locks ---


def test_lock_waits_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events: list[str] = []

    def second() -> None:
        with env.lock(tmp_path / "l", "doing that"):
            events.append("second")

    with env.lock(tmp_path / "l", "doing this"):
        thread = threading.Thread(target=second)
        thread.start()
        deadline = time.monotonic() + 20
        said = ""
        while "waiting" not in said and time.monotonic() < deadline:
            said += capfd.readouterr().err
            time.sleep(0.01)
        events.append("first")
    thread.join(20)
    assert said == "waiting: another process is doing that\n"
    assert events == ["first", "second"]


def test_two_processes_fetch_once(project: Project) -> None:
    code = (
        "import sys; from pathlib import Path; from aotools import env, env_base\n"
        "env.ROOT = env_base.ROOT = Path(sys.argv[1])\n"
        "env.wheel_tree('9.9.0')"
    )
    variables = {**os.environ, "PYTHONPATH": str(Path(env.__file__).parents[1])}
    command = [sys.executable, "-c", code, str(project.root)]
    both = [
        subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert sum("fetching torch 9.9.0" in text and "done" in text for text in errors) == 1
    assert project.leftovers() == [project.tree.name]


def test_sigterm_leaves_nothing_behind(project: Project, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import sys, time; from pathlib import Path; from aotools import env, env_base\n"
        "env.ROOT = env_base.ROOT = Path(sys.argv[1])\n"
        "def slow(*_, **__):\n"
        "    Path(sys.argv[2]).touch(); time.sleep(60)\n"
        "env.pip_install = slow\n"
        "env.run_cli(lambda: env.wheel_tree('9.9.0') and 0)"
    )
    variables = {**os.environ, "PYTHONPATH": str(Path(env.__file__).parents[1])}
    child = subprocess.Popen([sys.executable, "-c", code, project.root, ready], env=variables)
    deadline = time.monotonic() + 20
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 143
    assert project.leftovers() == []


# --- .venv ---


def test_venv_is_made_and_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_pip(monkeypatch)
    python = env.ensure_venv()
    assert (project.root / ".venv" / SITE / "tiny.py").is_file()
    assert env.ensure_venv() == python
    assert len(calls) == 1
    # New pins are installed into the same environment.
    make_wheel(project.wheels, "tiny", "2.0", {"tiny.py": "version = 2\n"})
    project.pin("tools", "tiny==2.0")
    assert not env.venv_ready()
    env.ensure_venv()
    done = subprocess.run(
        [python, "-c", "import tiny; print(tiny.version)"], capture_output=True, text=True
    )
    assert done.stdout == "2\n"
    # The .pth file puts a wheel tree behind it.
    env.link_torch(env.wheel_tree("9.9.0"))
    done = subprocess.run(
        [python, "-c", "import torch.version; print(torch.version.__version__)"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "9.9.0+cu999\n"


def test_an_interrupted_venv_is_taken_up_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(env, "pip_install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            env.ensure_venv()
    assert not env.venv_ready()
    env.ensure_venv()
    assert env.venv_ready()


def test_a_foreign_venv_is_left_alone(project: Project) -> None:
    mine = project.root / ".venv/pyvenv.cfg"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(UserError, match="was not made by this project's tools"):
        env.ensure_venv()
    assert [path.name for path in mine.parent.iterdir()] == ["pyvenv.cfg"]


def finished_venv(project: Project, made_for: str, python: str) -> Path:
    """Lays out what an earlier run would have left; `python` is what its interpreter points to."""
    binary = project.root / ".venv/bin/python"
    binary.parent.mkdir(parents=True)
    binary.symlink_to(python)
    stamp = {"python": made_for, "requirements": env_base.requirements("tools").digest}
    (project.root / ".venv" / env_base.STAMP).write_text(json.dumps(stamp))
    return binary


def test_a_venv_of_another_python_is_refused(project: Project) -> None:
    python = finished_venv(project, "3.9", sys.executable)
    with pytest.raises(UserError, match=r"was made with Python 3\.9") as error:
        env.ensure_venv()
    assert python.exists()
    *_, keep, _, remake = str(error.value).splitlines()
    assert keep == "  unset PYTHON"
    subprocess.run(["bash", "-c", remake], check=True, cwd="/")  # as it stands there, from anywhere
    assert env.ensure_venv().exists()


def test_a_venv_whose_python_is_gone_is_made_again(project: Project) -> None:
    finished_venv(project, env.python_name(), "/nowhere/python")
    assert env.ensure_venv().exists()
    assert env.venv_ready()


def test_no_ensurepip(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "ensurepip" else real(name)
    )
    with pytest.raises(UserError, match=rf"apt-get install python{env.python_name()}-venv"):
        env.ensure_venv()
    assert not (project.root / ".venv").exists()


def test_no_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "ATEN_OVERRIDES_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match=r"has no home folder .*ATEN_OVERRIDES_CACHE=/path"):
        env.cache_dir()
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", "/somewhere")
    assert env.cache_dir() == Path("/somewhere")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_what_the_machine_forbids_is_told(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise OSError(number, os.strerror(number), "/some/file")

    with pytest.raises(SystemExit) as ended:
        env.run_cli(main)
    assert ended.value.code == 2
    assert f"error: /some/file: {os.strerror(number)}. " in capsys.readouterr().err


def test_other_failures_keep_their_traceback() -> None:
    def main() -> int:
        raise OSError(errno.EIO, "damaged", "/some/file")

    with pytest.raises(OSError, match="damaged"):
        env.run_cli(main)


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_left_is_no_error(lines: int) -> None:
    code = f"from aotools import env\nenv.run_cli(lambda: print('x\\n' * {lines}) or 0)"
    read, write = os.pipe()
    os.close(read)
    variables = {**os.environ, "PYTHONPATH": str(env.ROOT / "tools")}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, env=variables
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("name", ["tree", "tré e"])
def test_torch_is_linked_whatever_the_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    venv, tree = tmp_path / "venv", tmp_path / name
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (tree / "torch").mkdir(parents=True)
    (tree / "torch/__init__.py").write_text("name = 'linked'\n")
    monkeypatch.setattr(env, "VENV", venv)
    env.link_torch(tree)
    for locale in ("C", "C.UTF-8"):
        variables = {"LC_ALL": locale, "PATH": os.environ["PATH"]}
        code = [str(venv / "bin/python"), "-c", "import torch; print(torch.name)"]
        done = subprocess.run(code, capture_output=True, text=True, env=variables)
        assert (done.stdout, done.stderr) == ("linked\n", "")
