"""Fixtures of the patch tools' tests: a fake base, and a cache of its own for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import fake_base
import pytest


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the fake base, which no test changes."""
    folder = tmp_path_factory.mktemp("fake")
    fake_base.make(folder)
    return folder


@pytest.fixture
def fake(made_once: Path, tmp_path: Path) -> fake_base.FakeBase:
    """A copy of the fake base."""
    folder = tmp_path / "fake"
    shutil.copytree(made_once, folder, symlinks=True)
    return fake_base.FakeBase(folder / "patches", folder / "source", folder / "own")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, set as the tools' own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(folder))
    return folder


@pytest.fixture
def hostile_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's git set-up in which everything that could change a result is on; returns its log."""
    home = tmp_path / "home"
    hooks, template = home / "hooks", home / "template"
    log = home / "hook-ran"
    (template / "hooks").mkdir(parents=True)
    hooks.mkdir()
    for folder in (hooks, template / "hooks"):
        for name in ("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit"):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {log}\nexit 1\n")
            (folder / name).chmod(0o755)
        for name in ("commit-msg", "prepare-commit-msg", "post-checkout", "post-merge"):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {log}\nexit 1\n")
            (folder / name).chmod(0o755)
    (home / "attributes").write_text("* text=auto eol=crlf\n*.cpp filter=shout\n")
    (home / ".gitconfig").write_text(
        "[core]\n"
        f"  hooksPath = {hooks}\n  autocrlf = true\n  attributesFile = {home / 'attributes'}\n"
        f"[init]\n  templateDir = {template}\n  defaultBranch = other\n"
        "[apply]\n  whitespace = fix\n  ignoreWhitespace = change\n"
        "[am]\n  threeWay = true\n  keepcr = true\n  messageid = true\n"
        "[commit]\n  gpgSign = true\n[gpg]\n  program = /bin/false\n"
        "[user]\n  name = Someone Else\n  email = else@example.org\n"
        '[filter "shout"]\n  clean = tr a-z A-Z\n  smudge = tr a-z A-Z\n'
        "[i18n]\n  commitEncoding = ISO-8859-1\n[mailinfo]\n  scissors = true\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "From The Environment")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(template))
    return log
