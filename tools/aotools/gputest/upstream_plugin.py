"""A pytest plugin for running upstream's test_linalg.py of 2.6.0 on a later torch, with or without
a relinked library.

Loaded by `-p aotools.gputest.upstream_plugin`. $ATEN_OVERRIDES_UPSTREAM names a JSON file: "torch"
(prepare it), "library" (empty: none), "preference" (add the name "cublas"), "out", "shard",
"shards", and test names: "done", "only", "left_out", "first". "others": the tests that are usually
left out instead of the usual ones; "overrides": enable the overrides. Each event is written to
"out" at once, so that a crash loses nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

SELECT = re.compile(
    r"(?:^|_)lu(?:_|$)|solve|inv|det(?!er)|lstsq|qr|householder|eigh|eigvalsh|cholesky"
    r"|preferred_linalg|looped_cusolver"
)
POISONED = 70  # exit code: the device is in error, every later test of the process would fail

_F = TypeVar("_F", bound=Callable[..., Any])


def _bf32_on_and_off(_: float = 1e-5) -> Callable[[_F], _F]:
    """What torch lost since 2.6: it ran a test twice on CPUs with bf32, and changed nothing on a
    GPU.
    """
    return lambda test: test


def prepare_torch() -> None:
    """Supplies the names that upstream's file imports and this torch, or this Python, lacks."""
    if importlib.util.find_spec("expecttest") is None:
        sys.path.append(str(Path(__file__).with_name("shim")))
    from torch.testing._internal import common_mkldnn

    if not hasattr(common_mkldnn, "bf32_on_and_off"):
        common_mkldnn.bf32_on_and_off = _bf32_on_and_off


def test_id(nodeid: str) -> str:
    """A test's id without its file: "TestLinalgCUDA::test_inverse_cuda_float32"."""
    return nodeid.partition("::")[2]


def selected(name: str, config: dict[str, Any]) -> bool:
    """Whether this process runs the test `name` (Class::function)."""
    function = name.partition("::")[2]
    if name in config["done"] or any(function.startswith(each) for each in config["left_out"]):
        return False
    if config["only"]:
        return name in config["only"]
    mine = zlib.crc32(name.encode()) % config["shards"] == config["shard"]
    usual = SELECT.search(function) is not None
    return mine and usual is not bool(config.get("others"))


def is_first(name: str, config: dict[str, Any]) -> bool:
    """Whether the test is one of those that must not be lost when time is short."""
    return any(name.partition("::")[2].startswith(each) for each in config["first"])


class Plugin:
    """The hooks, with the output file."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.out = Path(config["out"])
        self.outcome = "passed"
        self.message = ""
        self.started = 0.0

    def write(self, **event: Any) -> None:
        """Writes one event."""
        with self.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(event) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        keep = [item for item in items if selected(test_id(item.nodeid), self.config)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(keep)])
        keep.sort(key=lambda item: not is_first(test_id(item.nodeid), self.config))
        items[:] = keep
        self.write(collected=[test_id(item.nodeid) for item in keep])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.outcome, self.message, self.started = "passed", "", time.monotonic()
        self.write(start=test_id(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcome = "failed"
            self.message = self.message or first_line(str(report.longrepr))
        elif report.skipped and self.outcome == "passed":
            self.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.message = str(reason)[:160]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        seconds = round(time.monotonic() - self.started, 2)
        name = test_id(nodeid)
        self.write(test=name, outcome=self.outcome, seconds=seconds, message=self.message)
        if self.outcome == "failed" and not device_works():
            self.write(poisoned=name)
            os._exit(POISONED)


def first_line(longrepr: str) -> str:
    """The line of a failure's report that says what happened."""
    lines = [line[1:].strip() for line in longrepr.splitlines() if line.startswith("E ")]
    return (lines[0] if lines else longrepr.strip().rpartition("\n")[2])[:240]


def device_works() -> bool:
    """Whether the device still answers after a failure."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return True
    try:
        torch.cuda.synchronize()
        return bool((torch.ones(2, device="cuda") + 1).sum().item() == 4)
    except RuntimeError:
        return False


def pytest_configure(config: pytest.Config) -> None:
    """Prepares torch, loads the library and registers the hooks."""
    settings = json.loads(Path(os.environ["ATEN_OVERRIDES_UPSTREAM"]).read_text(encoding="utf-8"))
    if settings["torch"]:
        prepare_torch()
    if settings["library"]:
        from aotools.patchset import loader

        loader.load(settings["library"])
    if settings.get("overrides"):
        import aten_overrides

        aten_overrides.enable()
    if settings["preference"]:
        from aotools.patchset import preference

        preference.register()
    config.pluginmanager.register(Plugin(settings), "aten-overrides-upstream")
