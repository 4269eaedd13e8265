"""Reads docker/Dockerfile as far as the tests need it: stages, their instructions, RUN commands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from aotools.env import ROOT

PATH = ROOT / "docker/Dockerfile"


@dataclass
class Stage:
    """One FROM with what follows it: (instruction, text without line continuations)."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def args(self) -> dict[str, str]:
        """The ARGs with their defaults."""
        pairs = (text.partition("=") for word, text in self.steps if word == "ARG")
        return {name: value.strip('"') for name, _, value in pairs}

    def runs(self) -> list[str]:
        """The shell commands of the RUN steps, without their mounts."""
        return [command(text) for word, text in self.steps if word == "RUN"]

    def mounts(self) -> list[dict[str, str]]:
        """The mounts of all RUN steps."""
        found = []
        for word, text in self.steps:
            if word == "RUN":
                for row in re.findall(r"--mount=(\S+)", text.partition("&&")[0]):
                    found.append(dict(part.partition("=")[::2] for part in row.split(",")))
        return found


def command(text: str) -> str:
    """A RUN step's command."""
    return re.sub(r"^(--mount=\S+\s+)+", "", text)


def read(path: Path = PATH) -> tuple[dict[str, str], dict[str, Stage]]:
    """The ARGs before the first FROM, and the stages by name."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    top: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    current: Stage | None = None
    for line in joined.splitlines():
        word, _, text = line.partition(" ")
        if not word:
            continue
        if word == "FROM":
            base, _, name = text.partition(" AS ")
            current = stages[name] = Stage(name, base)
        elif current is None:
            assert word == "ARG", line
            name, _, value = text.partition("=")
            top[name] = value
        else:
            current.steps.append((word, text))
    return top, stages


def substituted(text: str, values: dict[str, str]) -> str:
    """`${NAME}` replaced by the values; `${NAME:+...}` is left to the shell."""
    return re.sub(r"\$\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)
