"""What is tried with each torch, and what can come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WORKS, REFUSED, IMPOSSIBLE, BROKEN = "works", "refused", "not possible", "broken"
# How each verdict is filed in a check record.
RESULTS = {WORKS: "pass", REFUSED: "skip", IMPOSSIBLE: "skip", BROKEN: "fail"}


@dataclass(frozen=True)
class Verdict:
    """What came of trying a feature. `value`: what was seen, as JSON; `reason`: why it does not
    work.
    """

    state: str
    value: Any = None
    reason: str = ""


@dataclass(frozen=True)
class Feature:
    """A feature: its name in records, and what the README calls it."""

    name: str
    what: str


BUILD = Feature("build", "the gpu library builds")
NATIVE = Feature("native kernels", "LU kernels of our own compile with it, by nvcc from PyPI")
# In the order of the table; each of them has a function in child.py.
TRIED = (
    Feature("install", "`enable()` makes the operations' entries ours, `disable()` the wheel's"),
    Feature("call", "calls go through the choice and are counted"),
    Feature("threads", "first calls from several threads are safe while enabled"),
    Feature("preference", '`preferred_linalg_library("cublas")`'),
    Feature("observe", "log and `profile()`"),
    Feature("tell", "`info` and `explain`"),
    Feature("run", "`python -m aten_overrides run`"),
    Feature("autoload", "`ATEN_OVERRIDES=1` enables at `import torch`"),
    Feature("gate", "a library built for another torch is refused before it is loaded"),
)
FEATURES = (BUILD, NATIVE, *TRIED)
