"""The files of docker/ and the workflow: linted, and true to each other and to the tools."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import actionlint
import dockerfile
import hcl2
import yaml  # type: ignore[import-untyped]

from aotools.env import ROOT, venv_python
from aotools.patchset import base as bases
from aotools.patchset import cli

BAKE = ROOT / "docker/docker-bake.hcl"
COMPOSE = ROOT / "docker/compose.yaml"
WORKFLOW = ROOT / ".github/workflows/images.yml"
TOP, STAGES = dockerfile.read()
HOW_TO_RUN = (COMPOSE.read_text(), WORKFLOW.read_text(), (ROOT / "docker/README.md").read_text())
OWN = "/opt/aten-overrides/tools/patchset"


def bake() -> dict[str, Any]:
    """docker-bake.hcl: {"variable": {name: default}, "target": {...}, "group": {...}}."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k.strip('"'): plain(v) for k, v in value.items() if k != "__is_block__"}
        if isinstance(value, list):
            return [plain(one) for one in value]
        return value.strip('"') if isinstance(value, str) else value

    data = hcl2.loads(BAKE.read_text(encoding="utf-8"))
    found: dict[str, Any] = {"variable": {}, "target": {}, "group": {}}
    for kind in found:
        for block in data[kind]:
            found[kind] |= plain(block)
    return found


def patchset_calls(command: str) -> list[list[str]]:
    """The arguments of each tools/patchset call in a shell command."""
    calls = []
    for part in command.split("&&"):
        words = shlex.split(part)
        if words and words[0] == OWN:
            calls.append(words[1:])
    return calls


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    program = venv_python().with_name("hadolint")
    done = subprocess.run([program, dockerfile.PATH], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    bad = tmp_path / "Dockerfile"  # and it would find something
    bad.write_text("FROM debian\nRUN cd /tmp && apt-get install git\n")
    done = subprocess.run([program, bad], capture_output=True, text=True)
    assert done.returncode != 0 and "DL3006" in done.stdout


def test_the_base_is_pinned_once_for_all() -> None:
    assert re.fullmatch(
        r"nvidia/cuda:[\w.-]+-devel-ubuntu\d\d\.\d\d@sha256:[0-9a-f]{64}", TOP["BASE_IMAGE"]
    )
    assert bake()["variable"]["BASE_IMAGE"]["default"] == TOP["BASE_IMAGE"]
    known = {*STAGES, "scratch", "${BASE_IMAGE}", "${RUNTIME_IMAGE}"}
    assert {stage.base for stage in STAGES.values()} <= known


def test_each_argument_is_declared_where_it_is_used_and_has_one_default() -> None:
    defaults: dict[str, set[str]] = {}
    for stage in STAGES.values():
        used = {n for _, text in stage.steps for n in re.findall(r"\$\{(\w+)(?::\+[^}]*)?\}", text)}
        set_here = {text.partition("=")[0] for word, text in stage.steps if word in ("ARG", "ENV")}
        assert used - set_here <= {"PATH"}, stage.name
        for name, value in stage.args().items():
            if value:
                defaults.setdefault(name, set()).add(value)
    assert {name: values for name, values in defaults.items() if len(values) > 1} == {}
    variables = {n: v["default"] for n, v in bake()["variable"].items()}
    for name, given in bake()["target"]["_common"]["args"].items():
        assert given in (name, "${" + name + "}")
        assert name in defaults.keys() | TOP.keys() | {"MAX_JOBS"}
        if name in defaults:
            assert defaults[name] == {variables[name]}
    assert set(defaults) - {"DEBIAN_FRONTEND"} <= set(bake()["target"]["_common"]["args"])


def test_bake_compose_and_workflow_name_stages_that_there_are() -> None:
    targets = {name: one for name, one in bake()["target"].items() if name != "_common"}
    assert {one["target"] for one in targets.values()} <= set(STAGES)
    assert set(bake()["group"]["all"]["targets"]) <= set(targets)
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    tags = {
        tag.partition("}")[2].partition(":")[0]
        for one in targets.values()
        for tag in one.get("tags", ())
    }
    for name, service in services.items():
        assert service["build"]["target"] in STAGES, name
        assert service["image"].partition("}")[2].partition(":")[0] in tags
        device = service["deploy"]["resources"]["reservations"]["devices"][0]
        assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    text = WORKFLOW.read_text()
    named = re.findall(r"docker buildx bake .*? ([\w-]+)$", text, re.M)
    assert named and set(named) <= set(targets)
    assert set(re.findall(r"compose .* run --rm ([\w-]+)", text)) <= set(services)


def test_images_carry_revision_and_caches_are_mounted() -> None:
    for name in ("full", "test-relinked"):
        labels = [text for word, text in STAGES[name].steps if word == "LABEL"]
        assert any('image.revision="${REVISION}"' in text for text in labels)
        users = [text for word, text in STAGES[name].steps if word == "USER"]
        assert users[-1] == "1000"
    mounted = {
        m["target"] for stage in STAGES.values() for m in stage.mounts() if m["type"] == "cache"
    }
    assert {"/root/.cache/pip", "/root/.cache/ccache", "/var/cache/apt"} <= mounted
    for stage in STAGES.values():
        for word, text in stage.steps:
            if word == "RUN" and "pip install" in text:
                assert "target=/root/.cache/pip" in text and "--no-deps" in text


def test_every_call_of_our_tools_is_one_that_they_take() -> None:
    seen = set()
    parser = cli.parser()
    for stage in STAGES.values():
        values = stage.args() | {"PYTORCH_URL": "url", "MAX_JOBS": "8"}
        commands = [dockerfile.substituted(text, values) for text in stage.runs()]
        for command in commands:
            optional = re.sub(r"\$\{MAX_JOBS:\+(.*?)\}(?= )", r"\1", command)
            for words in patchset_calls(optional):
                if words != ["--help"]:
                    seen.add(parser.parse_args(words).command)
        for word, text in stage.steps:
            if word == "ENTRYPOINT":
                for service in yaml.safe_load(COMPOSE.read_text())["services"].values():
                    words = [*json.loads(text), *service["command"]]
                    assert words[0] == OWN
                    seen.add(parser.parse_args(words[1:]).command)
    assert seen == {"apply", "build-full", "relink", "test-linalg"}


def test_the_defaults_exist_here() -> None:
    variables = {name: one["default"] for name, one in bake()["variable"].items()}
    base = bases.load(variables["SERIES"])
    assert base.tag == variables["PYTORCH_TAG"] and base.url == variables["PYTORCH_URL"]
    assert (ROOT / f"tools/requirements/torch-{variables['WHEEL']}.txt").is_file()
    for name in ("build", "test"):
        lines = (ROOT / f"docker/requirements/{name}.txt").read_text().splitlines()
        pins = [line for line in lines if line[:1] != "#"]
        assert pins and all(re.match(r"[\w.-]+==[\w.]+(;|$)", line) for line in pins)


def test_what_goes_into_one_image_has_one_version() -> None:
    wheel = bake()["variable"]["WHEEL"]["default"]
    lists = (ROOT / f"tools/requirements/torch-{wheel}.txt", ROOT / "docker/requirements/test.txt")
    pins: dict[str, set[str]] = {}
    for path in lists:
        for name, version in re.findall(r"^([\w.-]+)={2,3}([^\s;]+)", path.read_text(), re.M):
            pins.setdefault(name.lower().replace("_", "-"), set()).add(version)
    assert len(pins) > 20 and {n: found for n, found in pins.items() if len(found) > 1} == {}


def test_the_tests_run_as_whoever_the_user_is() -> None:
    for service in yaml.safe_load(COMPOSE.read_text())["services"].values():
        names = re.findall(r"\$\{(\w+):-1000\}", service["user"])
        assert len(names) == 2 and not {"UID", "GID"} & set(names)  # bash lets nobody set those
        assert all(f"{name}=$(id -" in text for name in names for text in HOW_TO_RUN)
        steps = dict(STAGES[service["build"]["target"]].steps)  # the last of each
        # A user of another number cannot enter the home folder that useradd made.
        assert (steps["WORKDIR"], steps["ENV"]) == ("/tmp", "HOME=/tmp USER=torch")
        assert set(service["build"]["args"]) <= set(bake()["variable"])


def test_what_the_steps_need_is_in_the_context() -> None:
    text = (ROOT / "docker/Dockerfile.dockerignore").read_text()
    rules = [line for line in text.splitlines() if line and line[:1] != "#"]

    def ignored(path: str) -> bool:
        parents = ["/".join(path.split("/")[: n + 1]) for n in range(path.count("/") + 1)]
        plain = [rule.removeprefix("**/") for rule in rules]
        whole = any(fnmatch.fnmatchcase(one, rule) for one in parents for rule in plain)
        return whole or any(
            fnmatch.fnmatchcase(p, r[3:]) for r in rules if r[:3] == "**/" for p in path.split("/")
        )

    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = listed.stdout.split()
    needed = [
        f for f in files if f.split("/")[0] in ("tools", "patches", "docker", "aten_overrides")
    ]
    assert len(needed) > 50
    assert [path for path in needed if ignored(path)] == []
    assert ignored(".git/config") and ignored("build/x") and ignored("aten_overrides/a.so")


def test_the_workflow_is_pinned_and_asks_for_little(tmp_path: Path) -> None:
    data = yaml.safe_load(WORKFLOW.read_text())
    assert data["permissions"] == {"contents": "read"}
    steps = [step for job in data["jobs"].values() for step in job["steps"]]
    uses = [step["uses"] for step in steps if "uses" in step]
    assert uses and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", one) for one in uses)
    for job in data["jobs"].values():
        assert job["timeout-minutes"] > 0
        assert set(job.get("needs", "cpu").split()) <= set(data["jobs"])
    for step in steps:  # what a pull request's author writes never reaches a shell
        assert "${{ github.event" not in step.get("run", "") and "${{ inputs" not in step.get(
            "run", ""
        )


def test_actionlint_finds_nothing_but_a_planted_mistake(tmp_path: Path) -> None:
    assert actionlint.findings(WORKFLOW) == []
    broken = tmp_path / "images.yml"
    broken.write_text(WORKFLOW.read_text().replace("needs: cpu", "needs: cup", 1))
    (found,) = actionlint.findings(broken)
    assert 'needs job "cup" which does not exist' in found
