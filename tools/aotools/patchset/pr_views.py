"""The tables of a pull request's text, each made from the records alone.

A view takes the folder with the records and gives Markdown; it says so when there is no record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools.readme import milliseconds, table

Record = dict[str, Any]
LANES_TOPICS = ("patchset", "patchset-lanes")


def records(folder: Path, topic: str) -> list[Record]:
    """The records of a topic, the newest of each GPU and torch, sorted by GPU."""
    newest: dict[tuple[str, str], Record] = {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        meta = data["meta"]
        if meta["topic"] != topic:
            continue
        key = (meta["gpu"], meta["torch"])
        if key not in newest or str(meta["date"]) >= str(newest[key]["meta"]["date"]):
            newest[key] = {**data, "file": path.name}
    return [newest[key] for key in sorted(newest)]


def versions(meta: Mapping[str, Any]) -> str:
    """GPU and versions in one line, as far as the record has them."""
    known = (
        ("driver", "driver"),
        ("torch", "torch"),
        ("cublas", "cuBLAS"),
        ("cusolver", "cuSOLVER"),
        ("magma", "MAGMA"),
    )
    parts = [f"{word} {meta[key]}" for key, word in known if meta.get(key)]
    return f"{meta['gpu']}, {', '.join(parts)}, {meta['date']}"


def having(folder: Path, topics: Sequence[str], job: str) -> list[Record]:
    """Of each GPU and torch the newest record of these topics with points of that job: one run may
    have measured only some of the parts.
    """
    newest: dict[tuple[str, str], Record] = {}
    for topic in topics:
        for record in records(folder, topic):
            meta = record["meta"]
            key, date = (meta["gpu"], meta["torch"]), str(meta["date"])
            known = newest.get(key)
            if _points(record, job=job) and (known is None or date > str(known["meta"]["date"])):
                newest[key] = record
    return [newest[key] for key in sorted(newest)]


def _points(record: Record, **wanted: object) -> list[dict[str, Any]]:
    return [row for row in record["points"] if all(row.get(key) == v for key, v in wanted.items())]


def cliff(folder: Path) -> str:
    """solve_ex on both sides of 512, before and after, by GPU, dtype and batch."""
    parts = []
    for record in records(folder, "patchset"):
        rows: list[Sequence[str]] = []
        for preference in ("default", "cusolver", "cublas"):
            times: dict[tuple[str, int], dict[tuple[str, int], float]] = {}
            for row in _points(record, op="solve_ex", backend="choice", preference=preference):
                problem = times.setdefault((row["dtype"], row["batch"]), {})
                problem[row["library"], row["n"]] = row["ms"]
            for (dtype, batch), by_library in times.items():
                rows += _cliff_rows(preference, dtype, batch, by_library)
        head = ("preference", "build", "dtype", "batch", "511 before", "512 before")
        parts.append(
            table((*head, "511 after", "512 after", "512: before / after"), rows, numbers=6)
            + "\n\n`torch.linalg.solve_ex`, one right-hand side, milliseconds; before: 2.6.0's own "
            f"or, with MAGMA, the wheel's. {_whole(record)}{versions(record['meta'])}."
        )
    return "\n\n".join(parts) or none("patchset")


def preferences(folder: Path) -> str:
    """solve_ex at 512 by preference: what "cublas" takes, beside the stock wheel's own two."""
    sources = {
        "default, stock": ("stock", "default"),
        '"cusolver", stock': ("stock", "cusolver"),
        '"cublas"': ("patched-magma", "cublas"),
    }
    parts = []
    for record in records(folder, "patchset"):
        times: dict[tuple[str, int], dict[str, float]] = {}
        for shown, (library, preference) in sources.items():
            wanted = {"library": library, "preference": preference}
            for row in _points(record, op="solve_ex", backend="choice", n=512, **wanted):
                times.setdefault((row["dtype"], row["batch"]), {})[shown] = row["ms"]
        rows = [
            (dtype, str(batch), *(milliseconds(found[name]) for name in sources))
            for (dtype, batch), found in times.items()
            if sources.keys() <= found.keys()
        ]
        if rows:
            head = ("dtype", "batch", *sources)
            parts.append(
                f"{table(head, rows, numbers=4)}\n\n`torch.linalg.solve_ex`, n = 512, one "
                f"right-hand side, milliseconds. {versions(record['meta'])}."
            )
    return "\n\n".join(parts) or none("patchset")


def _whole(record: Record) -> str:
    """That the times after are of all patches together, which are named."""
    built = record["meta"].get("built", {})
    names = [
        one["name"].removesuffix(".patch")
        for one in next((facts["patches"] for facts in built.values() if facts.get("patches")), ())
    ]
    if len(names) < 2:
        return ""
    return f"After: all of the series at once, not this patch alone ({', '.join(names)}). "


# build -> (library before, library after)
_BUILDS = {
    "without MAGMA": ("unpatched-nomagma", "patched-nomagma"),
    "with MAGMA": ("stock", "patched-magma"),
}


def _cliff_rows(
    preference: str, dtype: str, batch: int, times: Mapping[tuple[str, int], float]
) -> Iterable[Sequence[str]]:
    for build, (before, after) in _BUILDS.items():
        cells = [times.get((library, n)) for library in (before, after) for n in (511, 512)]
        if cells[2] is None or cells[3] is None:
            continue
        ratio = f"{cells[1] / cells[3]:.2f}" if cells[1] else ""
        shown = [milliseconds(ms) if ms else "" for ms in cells]
        yield (preference, build, dtype, str(batch), *shown, ratio)


def lanes(folder: Path) -> str:
    """The loop on one stream and on several, and whether the bits are the same."""
    parts = []
    for record in having(folder, LANES_TOPICS, "lanes/speed"):
        times: dict[tuple[str, int, int], dict[int, float]] = {}
        for row in _points(record, job="lanes/speed"):
            problem = times.setdefault((row["dtype"], row["batch"], row["n"]), {})
            problem[row.get("lanes", 1)] = row["ms"]
        counts = sorted({count for by_lanes in times.values() for count in by_lanes})
        rows = []
        for (dtype, batch, n), by_lanes in times.items():
            shown = [milliseconds(by_lanes[c]) if c in by_lanes else "" for c in counts]
            best = by_lanes[1] / min(by_lanes.values()) if 1 in by_lanes else None
            rows.append((dtype, str(batch), str(n), *shown, f"{best:.2f}" if best else ""))
        head = ("dtype", "batch", "n", *("the loop" if c == 1 else f"{c} streams" for c in counts))
        parts.append(
            table((*head, "gain"), rows, numbers=len(counts) + 3)
            + f"\n\n`lu_factor_ex`, milliseconds. {versions(record['meta'])}.\n\n"
            + checks(record, "lanes: bits", "lanes: graph", "lanes: two threads")
        )
    return "\n\n".join(parts) or none("patchset")


def handles(folder: Path) -> str:
    """What the handles cost and which limits hold."""
    parts = [
        checks(record, "lanes: device memory", "lanes: release", "lanes: memory limit")
        for record in having(folder, LANES_TOPICS, "lanes/speed")
    ]
    return "\n\n".join(parts) or none("patchset")


def allocations(folder: Path) -> str:
    """Allocator calls of one call by batch, before and after."""
    parts = []
    for record in records(folder, "patchset"):
        counted: dict[tuple[str, int], dict[str, int]] = {}
        for row in _points(record, backend="choice"):
            if "allocations" in row:
                problem = counted.setdefault((row["op"], row["batch"]), {})
                problem[row["library"]] = row["allocations"]
        rows = [
            (
                f"`{op}`",
                str(batch),
                *(str(found.get(name, "")) for name in _BUILDS["without MAGMA"]),
            )
            for (op, batch), found in counted.items()
        ]
        parts.append(
            table(("operation", "batch", "before", "after the whole series"), rows, numbers=3)
            + f"\n\nAllocator calls of one call. {versions(record['meta'])}."
        )
    return "\n\n".join(parts) or none("patchset")


def checks(record: Record, *prefixes: str) -> str:
    """The record's checks whose names start so: how many passed, and what did not, with reasons."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in record.get("checks", []):
        if row["name"].startswith(prefixes):
            found.setdefault(row["name"], []).append(row)
    lines = []
    for name, group in found.items():
        results = [row["result"] for row in group]
        order = ("pass", "fail", "vendor", "skip")
        counts = [f"{results.count(word)} {word}" for word in order if word in results]
        value = f" ({_shown(group[0]['value'])})" if results == ["pass"] else ""
        lines.append(f"- {name}: {', '.join(counts)}{value}")
        for row in group:
            if row["result"] in ("fail", "vendor"):
                what = ", ".join(f"{key} {value}" for key, value in row["params"].items())
                lines.append(f"  - {row['result']}: {what}: {row['reason'] or row['value']}")
    return "\n".join(lines) or f"The record {record['file']} has no such check."


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items())
    if isinstance(value, list):
        return f"{len(value)} in all" if len(value) > 3 else ", ".join(map(_shown, value)) or "none"
    return str(value)


def _checks_view(*prefixes: str) -> Callable[[Path], str]:
    def view(folder: Path) -> str:
        found = records(folder, "patchset")
        return "\n\n".join(
            f"{checks(record, *prefixes)}\n\n{versions(record['meta'])}." for record in found
        ) or none("patchset")

    return view


def none(topic: str) -> str:
    """What stands in place of a table without a record."""
    return f"*Not measured yet: there is no record of the topic {topic}.*"


VIEWS: dict[str, Callable[[Path], str]] = {
    "cliff": cliff,
    "preferences": preferences,
    "lanes": lanes,
    "handles": handles,
    "allocations": allocations,
    "limits": _checks_view("routes: batches at the vendors' limit"),
    "routes": _checks_view("routes: "),
    "solve": _checks_view("solve: "),
    "eigh": _checks_view("eigh: "),
    "unchanged": _checks_view("unchanged: "),
    "upstream": _checks_view("upstream: "),
}
