"""The results of a calibration under way: a line per problem, so that no interruption loses more
than one.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from aten_overrides._errors import UserError
from aten_overrides.calibration.measuring import Result
from aten_overrides.calibration.tasks import AnyTask

MADE_BY = "aten-overrides calibrate"
FORMAT = 1


class State:
    """A state file, locked while it is open. ``results``: what it holds, by task."""

    def __init__(self, path: Path, setup: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.results: dict[AnyTask, Result] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise UserError(f"the results cannot be kept in {path}: {error}") from error
        try:
            self._lock()
            self._file.seek(0)
            lines = self._file.read().splitlines(keepends=True)
            if not lines:
                self._begin(setup)
            elif not self._is_ours(lines[0]):
                raise UserError(
                    f"{path} was not written by {MADE_BY} and is left alone; name another file "
                    "with --state"
                )
            elif restart:
                self._begin(setup)
            else:
                self._resume(lines, setup)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"another calibration writes to {self.path}; wait for it, or name another file "
                "with --state"
            ) from error

    @staticmethod
    def _is_ours(line: str) -> bool:
        try:
            head = json.loads(line)
        except ValueError:
            return False
        return isinstance(head, dict) and head.get("made_by") == MADE_BY

    def _begin(self, setup: Mapping[str, Any]) -> None:
        self._file.truncate(0)
        self._write({"made_by": MADE_BY, "format": FORMAT, "setup": dict(setup)})

    def _resume(self, lines: list[str], setup: Mapping[str, Any]) -> None:
        head = json.loads(lines[0])
        before = head.get("setup", {}) if head.get("format") == FORMAT else {}
        changed = sorted(k for k in {*before, *setup} if before.get(k) != setup.get(k))
        if changed:
            told = "; ".join(f"{k}: {before.get(k)} there, {setup.get(k)} here" for k in changed)
            raise UserError(
                f"{self.path} holds results of another setup ({told}); --restart begins anew, "
                "--state names another file"
            )
        kept = len(lines[0])
        for line in lines[1:]:
            try:
                result = Result.of(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break  # cut off in the middle: what follows is measured again
            if not line.endswith("\n"):
                break
            self.results[result.task] = result
            kept += len(line)
        self._file.truncate(kept)  # the lines are ASCII
        self._file.seek(0, 2)

    def _write(self, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(value) + "\n")
        self._file.flush()

    def add(self, result: Result) -> None:
        """Keep a result."""
        self._write(result.to_json())
        self.results[result.task] = result

    def remove(self) -> None:
        """Delete the file: its results are elsewhere."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> State:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
