"""The record of a GPU run: one JSON file of meta data, timed points, checks and the jobs that made
them.

A job is the unit of work and of resuming: its rows carry its name, and running it again replaces
exactly them.
The file is written whole (temporary name, then rename) after every job, so an interrupted run loses
one job at most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotools.env import UserError, write_file

Row = dict[str, Any]

RESULTS = ("pass", "fail", "vendor", "skip")
_POINT_KEYS = {"op", "dtype", "m", "n", "batch", "nrhs", "backend", "ms", "spread"}
_CHECK_KEYS = {"name", "params", "result", "value", "reason"}
# What has to be the same for the rows of two runs to stand in one record.
IDENTITY = ("gpu", "driver", "torch", "cublas", "cusolver", "libraries")


def slug(text: str) -> str:
    """`text` as part of a file name: "NVIDIA H200" -> "nvidia-h200"."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def record_name(topic: str, gpu: str, torch_version: str) -> str:
    """The file name of a record: "patchset-nvidia-h200-torch2.11.0.json"."""
    return f"{slug(topic)}-{slug(gpu)}-torch{torch_version.partition('+')[0]}.json"


def check_row(row: Mapping[str, Any]) -> Row:
    """A point or check as it goes into the record; ValueError when something of it is missing or
    unknown.
    """
    keys = _CHECK_KEYS if "result" in row else _POINT_KEYS
    if missing := sorted(keys - row.keys()):
        raise ValueError(f"a row lacks {', '.join(missing)}: {dict(row)}")
    if "result" in row and row["result"] not in RESULTS:
        raise ValueError(f"result {row['result']!r} is none of {', '.join(RESULTS)}")
    return dict(row)


@dataclass
class Record:
    """A record in memory, bound to its file."""

    path: Path
    meta: Row
    points: list[Row] = field(default_factory=list)
    checks: list[Row] = field(default_factory=list)
    jobs: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Record:
        """Reads a record; UserError when the file is not one."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            made = cls(path, data["meta"], data["points"], data["checks"], data.get("jobs", {}))
            made.check_form()
            return made
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is not a record that can be read ({error}); move it away"
            ) from None

    @classmethod
    def open(cls, path: Path, meta: Row, resume: Path | None = None) -> tuple[Record, str]:
        """The record to go on with, and a sentence on what was found ("" for a new one).

        Looks at `path`, then at `resume`. Rows of another GPU, driver, torch or library are not
        mixed with new ones: such a file at `path` is kept under another name, such a `resume` is
        refused.
        """
        if path.exists():
            old = cls.load(path)
            if differing := old.differences(meta):
                kept = _free_name(path)
                path.replace(kept)
                return cls(
                    path, meta
                ), f"{path.name} is of another {differing}; it is kept as {kept.name}"
            return cls(path, meta, old.points, old.checks, old.jobs), f"going on with {path.name}"
        if resume is not None:
            old = cls.load(resume)
            if differing := old.differences(meta):
                raise UserError(
                    f"--resume {resume}: that record is of another {differing}; its rows cannot "
                    "stand beside new ones. Leave --resume out to start a new record"
                )
            return cls(path, meta, old.points, old.checks, old.jobs), f"going on from {resume}"
        return cls(path, meta), ""

    def check_form(self) -> None:
        """ValueError when a part is not of the form that `save` writes."""
        for name, table in (("meta", self.meta), ("jobs", self.jobs)):
            if not isinstance(table, dict):
                raise ValueError(f"its {name!r} is no table")
        if not all(isinstance(entry, dict) for entry in self.jobs.values()):
            raise ValueError("an entry of its 'jobs' is no table")
        for name, rows in (("points", self.points), ("checks", self.checks)):
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise ValueError(f"its {name!r} is no list of tables")
            for row in rows:
                if ("result" in row) != (name == "checks"):
                    raise ValueError(f"a row of its {name!r} belongs elsewhere: {row}")
                check_row(row)

    def differences(self, meta: Mapping[str, Any]) -> str:
        """Which of the identity keys differ from those in `meta`: "driver, torch"; "" when none
        does.
        """
        return ", ".join(key for key in IDENTITY if self.meta.get(key) != meta.get(key))

    def finished(self, job: str, key: str) -> bool:
        """Whether the job ended well, with the same options and code."""
        entry = self.jobs.get(job)
        return entry is not None and entry.get("state") == "done" and entry.get("key") == key

    def put(self, job: str, rows: Iterable[Mapping[str, Any]], entry: Row) -> None:
        """Replaces a job's rows and its entry, and writes the file."""
        fresh = [{**check_row(row), "job": job} for row in rows]
        self.points = [row for row in self.points if row.get("job") != job]
        self.checks = [row for row in self.checks if row.get("job") != job]
        for row in fresh:
            (self.checks if "result" in row else self.points).append(row)
        self.jobs[job] = entry
        self.save()

    def save(self) -> None:
        """Writes the file, one row a line, so that two versions of it can be compared."""
        lines = [f'{{"meta": {json.dumps(self.meta, indent=1)},\n"jobs": {{']
        lines.append(
            ",\n".join(
                f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in self.jobs.items()
            )
        )
        lines.append('},\n"points": [')
        lines.append(",\n".join(json.dumps(row) for row in self.points))
        lines.append('],\n"checks": [')
        lines.append(",\n".join(json.dumps(row) for row in self.checks))
        lines.append("]}\n")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path, "\n".join(lines))
        except OSError as error:
            raise UserError(f"cannot write the record {self.path}: {error.strerror}") from None


def _free_name(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    return kept
