"""Settings of all tests: hypothesis profiles, and what to do when wheels or source are missing."""

from __future__ import annotations

import os

import hypothesis
import pytest

from aotools import env

# Deterministic, and without a deadline: two busy cores are no reason to fail.
hypothesis.settings.register_profile("project", deadline=None, derandomize=True)
hypothesis.settings.load_profile("project")


def _missing() -> dict[str, str]:
    """For each marker whose material is not in the cache: why its tests cannot run."""
    missing = {}
    wheels = [version for version in env.known_versions() if not env.tree_ready(version)]
    if wheels:
        missing["wheel"] = f"no unpacked wheel of torch {', '.join(wheels)} in {env.cache_dir()}"
    if not any((env.cache_dir() / "source").glob("*")):
        missing["source"] = f"no PyTorch source in {env.cache_dir()}"
    return missing


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose material is missing; under tools/test, which fetched it, fails instead."""
    required = os.environ.get("AOTOOLS_REQUIRE", "").split(",")
    for marker, reason in _missing().items():
        if item.get_closest_marker(marker) is None:
            continue
        if marker in required:
            pytest.fail(f"{reason}, although it is required here", pytrace=False)
        pytest.skip(f"{reason}: tools/test fetches it")
