"""A list of findings, one line each, and the exit code they amount to."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal, TextIO

Verdict = Literal["PASS", "FAIL", "SKIP"]


@dataclass(frozen=True)
class Finding:
    """One item: what was looked at, the verdict, and why when it is not a plain pass."""

    item: str
    verdict: Verdict
    reason: str = ""

    def __str__(self) -> str:
        first, *rest = self.reason.splitlines() or [""]
        line = f"{self.verdict} {self.item}{': ' if first else ''}{first}"
        return "\n".join([line, *(f"     {row}" for row in rest)])


@dataclass
class Report:
    """Collects findings and prints each as it comes."""

    stream: TextIO | None = None
    findings: list[Finding] = field(default_factory=list)

    def add(self, item: str, problems: list[str] | str = "", *, note: str = "") -> bool:
        """A pass (with `note`) when there are no `problems`, else a failure; returns whether it
        passed.
        """
        text = problems if isinstance(problems, str) else "\n".join(problems)
        self._print(Finding(item, "FAIL" if text else "PASS", text or note))
        return not text

    def skip(self, item: str, reason: str) -> None:
        """An item that could not be looked at, which is not a pass."""
        self._print(Finding(item, "SKIP", reason))

    def _print(self, finding: Finding) -> None:
        self.findings.append(finding)
        print(finding, file=self.stream or sys.stdout, flush=True)

    def count(self, verdict: Verdict) -> int:
        """How many findings have this verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)

    def summary(self) -> str:
        """The closing line."""
        passed, failed, skipped = (self.count(verdict) for verdict in ("PASS", "FAIL", "SKIP"))
        return f"{passed} passed, {failed} failed, {skipped} skipped"

    @property
    def exit_code(self) -> int:
        """0 when nothing failed and something passed, else 1."""
        return 0 if self.count("FAIL") == 0 and self.count("PASS") > 0 else 1
