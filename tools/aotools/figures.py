"""Pictures and tables for README.md beside the cliff: the map of chosen back ends, the share of the
limit over n, the bench's table, the kernels at both sides of the cliff, and what scan and bench ran
on. ``PARTS`` are generated parts for aotools.readme; ``sync`` draws the pictures. A part whose
record is not there yet is empty.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools import readme
from aten_overrides._explain import Explainer, Question
from aten_overrides._select import Facts, Native, Problem
from aten_overrides.bench import picture, report
from aten_overrides.measure import style
from aten_overrides.scan import kernels
from aten_overrides.scan import picture as scan_picture
from aten_overrides.scan.backends import Side

TOPIC = "bench"
CLIFFS = "cliffs"
MAP_DTYPE = "float32"
SIZES = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 511, 512, 768, 1024, 1536, 2048)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# Each back end by a colour and by a letter, which also tells them apart in grey.
LOOK = {
    "batched_cublas": ("#56B4E9", "b", "batched, cuBLAS"),
    "looped_cusolver": ("#E69F00", "l", "looped, cuSOLVER"),
    "streamed_cusolver": ("#009E73", "s", "on streams, cuSOLVER"),
    "stock": ("#CCCCCC", "M", "stock (MAGMA)"),
    "batched_native": ("#0072B2", "n", "our batched kernels"),
}
OTHER = ("#F0E442", "?")

Cells = dict[tuple[int, int], str]


# --- the map of back ends ---


def _question(native: bool, prefer: str = "default") -> Question:
    facts = Facts(native=Native.USABLE if native else Native.NOT_BUILT)
    return Question("lu_factor", MAP_DTYPE, prefer, facts)


def chosen(explainer: Explainer, prefer: str = "default") -> dict[str, Cells]:
    """The back ends by (batch, n): by stock's rule, and as the table chooses without our kernels
    and with them.
    """
    before: Cells = {}
    libraries: Cells = {}
    ours: Cells = {}
    for batch in BATCHES:
        for n in SIZES:
            problem = Problem(batch, n, n)
            found = explainer.explain(_question(False, prefer), problem)
            before[batch, n] = found.stock_rule.backend
            libraries[batch, n] = found.chosen
            ours[batch, n] = explainer.explain(_question(True, prefer), problem).chosen
    return {
        "stock torch 2.6": before,
        "measured, built without nvcc": libraries,
        "measured, with our kernels": ours,
    }


def regret(explainer: Explainer, native: bool) -> float | None:
    """The geometric mean of what stock's choice takes over the table's, over the map's problems."""
    ratios = []
    for batch in BATCHES:
        for n in SIZES:
            found = explainer.explain(_question(native), Problem(batch, n, n))
            if found.stock_rule.regret is not None:
                ratios.append(found.stock_rule.regret)
    return _geometric_mean(ratios) if ratios else None


def _geometric_mean(values: Sequence[float]) -> float:
    product = 1.0
    for value in values:
        product *= value ** (1 / len(values))
    return product


def draw_map(
    maps: Mapping[str, Cells], gpu: str, path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes the map: a panel a rule, a cell a problem with the back end's colour and letter."""
    plt = style.pyplot()
    figure, axes = plt.subplots(
        1, len(maps), figsize=(style.WIDTH, 4), sharey=True, squeeze=False, layout="constrained"
    )
    seen: dict[str, None] = {}
    for axis, (title, cells) in zip(axes[0], maps.items(), strict=True):
        for row, batch in enumerate(BATCHES):
            for column, n in enumerate(SIZES):
                backend = cells[batch, n]
                seen[backend] = None
                colour, letter = LOOK.get(backend, (*OTHER, backend))[:2]
                axis.add_patch(plt.Rectangle((column, row), 1, 1, facecolor=colour, linewidth=0))
                dark = colour in ("#0072B2", "#009E73")
                axis.text(
                    column + 0.5,
                    row + 0.5,
                    letter,
                    ha="center",
                    va="center",
                    fontsize=5,
                    color="white" if dark else style.DARK,
                )
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="n", xlim=(0, len(SIZES)), ylim=(0, len(BATCHES)))
        axis.set_xticks([i + 0.5 for i in range(len(SIZES))], SIZES, rotation=90, fontsize=7)
        axis.set_yticks([i + 0.5 for i in range(len(BATCHES))], BATCHES, fontsize=8)
        axis.tick_params(length=0)
    axes[0][0].set_ylabel("matrices in the batch")
    known = [name for name in [*LOOK, *seen] if name in seen]
    looks = {name: LOOK.get(name, (*OTHER, name)) for name in dict.fromkeys(known)}
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=look[0]) for look in looks.values()]
    labels = [f"{look[1]}: {look[2]}" for look in looks.values()]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(f"Back end of lu_factor, {MAP_DTYPE}, n x n; {gpu}", fontsize=10)
    style.save(figure, path, metadata)


def _map_path(gpu: str) -> Path:
    return readme.RECORDS / "figures" / f"backends-{'-'.join(gpu.lower().split())}.png"


def backend_map() -> str:
    """The map with its words."""
    explainer = Explainer()
    gpu = explainer.table.gpu.name
    means = [regret(explainer, native) for native in (False, True)]
    image = f"![Chosen back ends by batch and n]({_map_path(gpu).relative_to(readme.ROOT)})"
    words = f"By the measured table of {gpu}"
    if None not in means:
        words += (
            f"; over these problems stock's choice takes {means[0]:.2f} times as long on average "
            f"as the libraries chosen by it, and {means[1]:.2f} times as long as with our kernels"
        )
    return f"{image}\n\n{words} (`aten-overrides explain lu_factor --grid`)."


# --- the bench ---


def limit_picture() -> str:
    """The share of the limit over n, with its words."""
    found = readme.load_record(TOPIC)
    if found is None:
        return ""
    path, record = found
    image = f"![Share of the limit over n]({_limit_path(path).relative_to(readme.ROOT)})"
    return f"{image}\n\n{readme.caption(path, record['meta'])}"


def _limit_path(record: Path) -> Path:
    return record.parent / "figures" / f"limit-{record.stem.partition('-')[2]}.png"


# Columns of the table: the rivals' names in the record; the best of the others in one.
COLUMNS = {
    "stock, default": "stock",
    "stock, cusolver": 'stock, "cusolver"',
    "overrides": "overrides",
    "cupy": "CuPy",
    "jax": "JAX",
}
LEFT_OUT = ("stock, magma",)  # as the default for what is in the table
SIZES_SHOWN = {"solve_ex": (512,), "lu_factor_ex": (64, 256, 512, 1024, 2048)}


def bench_table() -> str:
    """Milliseconds of the rivals at some problems, the fastest in bold, and the overrides' share of
    the limit.
    """
    found = readme.load_record(TOPIC)
    if found is None:
        return ""
    path, record = found
    times: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for point in record["points"]:
        problem, rival = report.problem_of(point), report.rival_of(point)
        if problem[3] in SIZES_SHOWN.get(problem[0], (problem[3],)):
            times.setdefault(problem, {})[rival] = point
    seen = {rival for rivals in times.values() for rival in rivals}
    columns = [name for name in COLUMNS if name in seen]
    rows = [_bench_row(problem, rivals, columns) for problem, rivals in times.items()]
    head = ["milliseconds", "matrices x n", *(COLUMNS[name] for name in columns)]
    head += ["best routine by itself", "overrides, of the limit"]
    text = readme.table(head, rows, numbers=len(head) - 2)
    words = (
        "Medians. The last column but one: the fastest of cuBLAS's, cuSOLVER's and our routines, "
    )
    words += "called directly (`lu_factor_ex`, `eigh`) or forced within torch's operation."
    return f"{text}\n\n{words} {readme.caption(path, record['meta'])}"


def _bench_row(
    problem: tuple[Any, ...], rivals: Mapping[str, Mapping[str, Any]], columns: Sequence[str]
) -> list[str]:
    op, dtype, batch, n, nrhs = problem
    best = min(point["ms"] for point in rivals.values())

    def cell(point: Mapping[str, Any] | None, name: str = "") -> str:
        if point is None:
            return ""
        shown = readme.milliseconds(point["ms"])
        return (f"**{shown}**" if point["ms"] == best else shown) + (f" ({name})" if name else "")

    row = [f"`{op}` {dtype}", f"{batch} x {n}" + (f", {nrhs} rhs" if nrhs > 1 else "")]
    row += [cell(rivals.get(name)) for name in columns]
    others = {
        name: point
        for name, point in rivals.items()
        if name not in COLUMNS and name not in LEFT_OUT
    }
    first = min(others, key=lambda name: others[name]["ms"], default="")
    row.append(cell(others.get(first), first))
    ours = rivals.get("overrides")
    share = ours.get("limit_share") if ours is not None else None
    return [*row, f"{100 * share:.2g} %" if share is not None else ""]


# --- what the tools ran on ---


def tools_status() -> str:
    """What scan and bench were run on, by the records there are."""
    scanned, timed = readme.load_record(CLIFFS), readme.load_record(TOPIC)
    lines = []
    if scanned is not None:
        _, record = scanned
        counts = {library: [0, 0] for library in ("stock", "overrides")}
        for scan in record["scans"]:
            library = "overrides" if scan["target"]["overrides"] else "stock"
            kept = [one for one in scan["findings"] if one["confidence"] != "AMBIGUOUS"]
            counts[library][0] += 1
            counts[library][1] += len(kept)
        (scans, cliffs), (ours, left) = counts["stock"], counts["overrides"]
        lines.append(
            f"On the {record['meta']['gpu']} `scan` found {cliffs} cliffs in {scans} ranges of "
            f"stock torch, and {left} in the {ours} of them that the overrides cover: "
            "[docs/cliffs.md](docs/cliffs.md)."
        )
    if timed is not None:
        _, record = timed
        problems = {report.problem_of(point) for point in record["points"]}
        mean = _geometric_mean(_ratios(record["points"]) or [1.0])
        lines.append(
            f"`bench` timed {len(problems)} problems there; stock torch takes {mean:.1f} times as "
            "long as with the overrides, on average ([table](#figures))."
        )
    if scanned is None and timed is None:
        return (
            "`scan` and `bench` were tested on the CPU and on stand-ins; neither has run on a GPU "
            "yet."
        )
    missing = [name for name, found in (("scan", scanned), ("bench", timed)) if found is None]
    lines += [f"`{name}` has not run on a GPU yet." for name in missing]
    return "\n".join(lines)


def _ratios(points: Sequence[Mapping[str, Any]]) -> list[float]:
    """Stock's time over the overrides', by problem."""
    times = {(report.problem_of(point), report.rival_of(point)): point["ms"] for point in points}
    return [
        ms / times[problem, "overrides"]
        for (problem, rival), ms in times.items()
        if rival == "stock, default" and (problem, "overrides") in times
    ]


# --- the kernels at both sides of the cliff ---


def timelines(record: Mapping[str, Any]) -> list[tuple[str, kernels.Trace]]:
    """The rows of the picture: label and trace of each size, stock's first."""
    rows = []
    for one in record.get("timelines", []):
        who = "overrides" if one["target"]["overrides"] else "stock"
        for side, trace in zip(one["sides"], one["traces"], strict=True):
            if trace is not None:
                shown = Side(side["size"], side["chosen"], side["ms"])
                found = kernels.trace_of(trace)
                rows.append((scan_picture.label(shown, found, who), found))
    return rows


def timelines_title(record: Mapping[str, Any]) -> str:
    """What the picture is of."""
    meta, target = record["meta"], record["timelines"][0]["target"]
    prefer = f'stock with preference "{target["prefer"]}"' if target["prefer"] else "stock"
    return (
        f"Kernels of one {target['op']}, {target['dtype']}, {target['batch']} matrices of n x n:\n"
        f"{prefer}, and with the overrides; {meta['gpu']}, torch {meta['torch']}, {meta['date']}"
    )


def _kernels_path(record: Path) -> Path:
    return record.parent / "figures" / f"kernels-{record.stem.partition('-')[2]}.png"


def kernels_picture() -> str:
    """The kernels of one call at 511 and 512, in stock torch and with the overrides."""
    found = readme.load_record(CLIFFS)
    if found is None or not timelines(found[1]):
        return ""
    path, record = found
    image = f"![The kernels of one call]({_kernels_path(path).relative_to(readme.ROOT)})"
    return f"{image}\n\n{readme.caption(path, record['meta'])}"


# --- pictures ---


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for file in (__file__, picture.__file__, scan_picture.__file__, style.__file__):
        digest.update(Path(str(file)).read_bytes())
    return digest.hexdigest()


def _pictures() -> list[tuple[Path, str, Callable[[Path, Mapping[str, str]], None]]]:
    """File, digest of what it shows, and how to draw it."""
    explainer = Explainer()
    gpu = explainer.table.gpu.name
    maps = chosen(explainer)
    shown = {title: sorted(cells.items()) for title, cells in maps.items()}
    drawn: list[tuple[Path, str, Callable[[Path, Mapping[str, str]], None]]] = [
        (
            _map_path(gpu),
            _digest([gpu, shown]),
            lambda path, metadata: draw_map(maps, gpu, path, metadata),
        )
    ]
    found = readme.load_record(TOPIC)
    if found is not None and picture.panels(found[1]["points"]):
        record, data = found
        meta: Mapping[str, Any] = data["meta"]
        points: Sequence[Mapping[str, Any]] = data["points"]
        drawn.append(
            (
                _limit_path(record),
                _digest([meta, points]),
                lambda path, metadata: picture.draw_limit(meta, points, path, metadata),
            )
        )
    scanned = readme.load_record(CLIFFS)
    rows = timelines(scanned[1]) if scanned is not None else []
    if scanned is not None and rows:
        title = timelines_title(scanned[1])
        drawn.append(
            (
                _kernels_path(scanned[0]),
                _digest([title, scanned[1]["timelines"]]),
                lambda path, metadata: scan_picture.draw_timelines(rows, title, path, metadata),
            )
        )
    return drawn


def sync(*, check: bool) -> list[str]:
    """Draws the pictures that are not there as their data say; with `check` only names them."""
    wrong = []
    for path, digest, draw in _pictures():
        if readme.stated_digest(path) == digest:
            continue
        wrong.append(f"{path.relative_to(readme.ROOT)} is not drawn from its data as they are")
        if not check:
            path.parent.mkdir(exist_ok=True)
            draw(path, {"Source": digest})
    return wrong


PARTS: dict[str, Callable[[], str]] = {
    "backend-map": backend_map,
    "bench-table": bench_table,
    "kernels-picture": kernels_picture,
    "limit-picture": limit_picture,
    "tools-status": tools_status,
}
