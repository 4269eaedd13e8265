"""The pytest plugin of `tools/patchset test-linalg`: skips by the list and writes each event.

$ATEN_OVERRIDES_TEST_LINALG names a JSON file: "out", "done" (tests with an outcome already),
"skips" ([pattern, reason] of those that apply), "only_skipped", "torch", "library", "preference".
"""

from __future__ import annotations

import fnmatch
import json
import os
from pathlib import Path
from typing import Any

import pytest

from aotools.gputest import upstream_plugin

VARIABLE = "ATEN_OVERRIDES_TEST_LINALG"


class Plugin(upstream_plugin.Plugin):
    """As for comparing two libraries, but with a list of what to skip instead of a selection."""

    def reason(self, name: str) -> str | None:
        """Why the test is on the list, None if it is not."""
        for pattern, reason in self.config["skips"]:
            if fnmatch.fnmatchcase(name, pattern):
                return str(reason)
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        names = {id(item): upstream_plugin.test_id(item.nodeid) for item in items}
        self.write(collected=list(names.values()))
        done = set(self.config["done"])
        keep = []
        for item in items:
            name = names[id(item)]
            reason = self.reason(name)
            if name in done or (self.config["only_skipped"] and reason is None):
                continue
            if reason is not None and not self.config["only_skipped"]:
                item.add_marker(pytest.mark.skip(reason=f"skip list: {reason}"))
            keep.append(item)
        kept = {id(item) for item in keep}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = keep


def pytest_configure(config: pytest.Config) -> None:
    """Prepares torch, loads the library and registers the hooks."""
    settings: dict[str, Any] = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    if settings["torch"]:
        upstream_plugin.prepare_torch()
    if settings["library"]:
        from aotools.patchset import loader

        loader.load(settings["library"])
    if settings["preference"]:
        from aotools.patchset import preference

        preference.register()
    config.pluginmanager.register(Plugin(settings), "aten-overrides-test-linalg")
