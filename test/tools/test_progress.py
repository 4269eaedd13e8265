"""Progress: one redrawn line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import time

import pytest

from aotools.progress import Bar, seconds_text, size_text, step


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_elsewhere() -> None:
    out = io.StringIO()
    with Bar("fetching", 100, stream=out) as bar:
        bar.update(50)
    first, last = out.getvalue().splitlines()
    assert first == "fetching ..."
    assert last.startswith("fetching: done after ")


def test_a_redrawn_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    with Bar("fetching", 2e9, stream=out) as bar:
        bar.update(1e9)
        bar.update(3e9)  # more than announced is no more than full
    drawn = [part.rstrip() for part in out.getvalue().split("\r")]
    assert drawn[1] == "fetching [############............] 1.0 GB of 2.0 GB"
    assert drawn[2] == "fetching [########################] 2.0 GB of 2.0 GB"
    assert drawn[3].startswith("fetching: done after ")
    assert out.getvalue().count("\n") == 1


def test_a_narrow_terminal_gets_no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    out = Terminal()
    with Bar("a label that is long", 10, stream=out) as bar:
        bar.update(5)
    assert max(map(len, out.getvalue().split("\r"))) <= 30


def test_a_failure_is_not_called_done() -> None:
    out = io.StringIO()
    with pytest.raises(OSError, match="full"), Bar("fetching", 1, stream=out):
        raise OSError("full")
    assert "stopped after" in out.getvalue()


def test_measured_by_itself() -> None:
    out = Terminal()
    asked = []

    def measure() -> float:
        asked.append(1)
        return 5.0

    with Bar("x", 10, measure=measure, stream=out):
        deadline = time.monotonic() + 10
        while not asked and time.monotonic() < deadline:
            time.sleep(0.02)
    assert asked
    assert "5 B of 10 B" in out.getvalue()


def test_step_tells_its_time_also_when_it_fails() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="no"), step("one", out):
        raise ValueError("no")
    first, second = out.getvalue().splitlines()
    assert first == "== one"
    assert second.endswith(" s")


def test_sizes_and_times() -> None:
    sizes = [size_text(value) for value in (0, 999, 27.4e6, 812e6, 2.8e9, 12.3e9)]
    assert sizes == ["0 B", "999 B", "27 MB", "812 MB", "2.8 GB", "12 GB"]
    times = [seconds_text(value) for value in (0.04, 9.96, 59.4, 75, 3601)]
    assert times == ["0.0 s", "10.0 s", "59 s", "1 min 15 s", "60 min 1 s"]
