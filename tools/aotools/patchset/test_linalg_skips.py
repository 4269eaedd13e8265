"""The skip list of `tools/patchset test-linalg`: data with reasons, conditions, stale entries."""

from __future__ import annotations

import fnmatch
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotools.env import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT = Path(__file__).with_name("test_linalg_skips.toml")
FACTS = ("device", "relinked", "magma", "torch", "cuda", "python", "capability", "memory_gib")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
Value = bool | str | float | None


@dataclass(frozen=True)
class Skip:
    """One entry of the list."""

    test: str
    reason: str
    when: Mapping[str, bool | str]

    def matches(self, name: str) -> bool:
        """Whether a test (Class::function) is meant."""
        return fnmatch.fnmatchcase(name, self.test)

    def applies(self, facts: Mapping[str, Value]) -> bool:
        """Whether every condition holds; one about an unknown fact (None) does not."""
        return all(_holds(facts.get(name), wanted) for name, wanted in self.when.items())


def _holds(found: Value, wanted: bool | str) -> bool:
    if found is None:
        return False
    if isinstance(wanted, bool):
        return found is wanted
    match = re.fullmatch(r"(>=|<=|==|!=|<|>)\s*([\d.]+)", wanted)
    if match is None:
        return found == wanted
    left, right = _numbers(found), _numbers(match[2])
    if match[1] in ("==", "!="):  # "==2.6" holds for 2.6.0 and 2.6.1
        left = left[: len(right)]
    return _COMPARE[match[1]](left, right)


def _numbers(value: Value) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(value).partition("+")[0]))


def read(path: Path = DEFAULT) -> list[Skip]:
    """The list; UserError for an entry without a reason, with an unknown fact, or stated twice."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("skip", [])
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    result: list[Skip] = []
    for number, row in enumerate(rows, 1):
        where = f"{path}, entry {number} ({row.get('test', 'without a test')})"
        when = row.get("when", {})
        if extra := sorted(row.keys() - {"test", "reason", "when"}):
            raise UserError(f"{where}: there is no field {extra[0]}")
        if not row.get("test") or "::" not in row["test"]:
            raise UserError(f"{where}: test is Class::function")
        if not str(row.get("reason", "")).strip():
            raise UserError(f"{where} has no reason")
        if unknown := sorted(when.keys() - set(FACTS)):
            raise UserError(f"{where}: {unknown[0]} is no fact; there are {', '.join(FACTS)}")
        skip = Skip(row["test"], row["reason"].strip(), dict(when))
        if skip in result:
            raise UserError(f"{where} is there twice")
        result.append(skip)
    return result


def stale(
    skips: Sequence[Skip],
    facts: Mapping[str, Value],
    collected: Iterable[str],
    passed: Iterable[str] = (),
) -> list[str]:
    """What to warn of: entries that apply and match nothing, or whose tests all pass."""
    names, good = list(collected), set(passed)
    told = []
    for skip in skips:
        if not skip.applies(facts):
            continue
        meant = [name for name in names if skip.matches(name)]
        if not meant:
            told.append(f"{skip.test} matches no test")
        elif good.issuperset(meant):
            told.append(f"{skip.test}: its {len(meant)} tests pass")
    return told
