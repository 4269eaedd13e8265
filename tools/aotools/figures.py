"""Pictures and tables for README.md beside the cliff: the map of chosen back ends, the share of the
limit over n, and the bench's table. ``PARTS`` are generated parts for aotools.readme; ``sync``
draws the pictures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools import readme
from aten_overrides._explain import Explainer, Question
from aten_overrides._select import Facts, Problem
from aten_overrides.bench import picture, report
from aten_overrides.measure import style

TOPIC = "bench"
NO_RECORD = "*No record yet: `aten-overrides bench` on a machine with a GPU makes it.*"
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


def chosen(explainer: Explainer, prefer: str = "default") -> dict[str, Cells]:
    """The back ends by (batch, n): before, by stock's rule, and as the table chooses."""
    question = Question("lu_factor", MAP_DTYPE, prefer, Facts())
    before: Cells = {}
    after: Cells = {}
    for batch in BATCHES:
        for n in SIZES:
            found = explainer.explain(question, Problem(batch, n, n))
            before[batch, n] = found.stock_rule.backend
            after[batch, n] = found.chosen
    return {"stock torch 2.6": before, "measured choice": after}


def regret(explainer: Explainer) -> float | None:
    """The geometric mean of what stock's choice takes over the table's, over the map's problems."""
    question = Question("lu_factor", MAP_DTYPE, "default", Facts())
    ratios = []
    for batch in BATCHES:
        for n in SIZES:
            found = explainer.explain(question, Problem(batch, n, n))
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
                    fontsize=6,
                    color="white" if dark else style.DARK,
                )
        axis.set(title=title, xlabel="n", xlim=(0, len(SIZES)), ylim=(0, len(BATCHES)))
        axis.set_xticks([i + 0.5 for i in range(len(SIZES))], SIZES, rotation=90, fontsize=8)
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
    mean = regret(explainer)
    image = f"![Chosen back ends by batch and n]({_map_path(gpu).relative_to(readme.ROOT)})"
    words = f"By the measured table of {gpu}"
    if mean is not None:
        words += f"; over these problems stock's choice takes {mean:.2f} times as long, on average"
    return f"{image}\n\n{words} (`aten-overrides explain lu_factor --grid`)."


# --- the bench ---


def limit_picture() -> str:
    """The share of the limit over n, with its words."""
    found = readme.load_record(TOPIC)
    if found is None:
        return NO_RECORD
    path, record = found
    image = f"![Share of the limit over n]({_limit_path(path).relative_to(readme.ROOT)})"
    return f"{image}\n\n{readme.caption(path, record['meta'])}"


def _limit_path(record: Path) -> Path:
    return record.parent / "figures" / f"limit-{record.stem.partition('-')[2]}.png"


def bench_table() -> str:
    """Milliseconds of all rivals by problem; the fastest in bold."""
    found = readme.load_record(TOPIC)
    if found is None:
        return NO_RECORD
    path, record = found
    points = record["points"]
    rivals = list(dict.fromkeys(map(report.rival_of, points)))
    cells = {(report.problem_of(point), report.rival_of(point)): point["ms"] for point in points}
    rows = []
    for problem in dict.fromkeys(map(report.problem_of, points)):
        op, dtype, batch, n, nrhs = problem
        best = min(ms for key, ms in cells.items() if key[0] == problem)
        row = [f"`{op}` {dtype}", f"{batch} x {n}" + (f", {nrhs} rhs" if nrhs else "")]
        for rival in rivals:
            ms = cells.get((problem, rival))
            shown = "" if ms is None else readme.milliseconds(ms)
            row.append(f"**{shown}**" if ms == best else shown)
        rows.append(row)
    head = ("milliseconds", "matrices x n", *rivals)
    text = readme.table(head, rows, numbers=len(rivals))
    return f"{text}\n\n{readme.caption(path, record['meta'])}"


# --- pictures ---


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for file in (__file__, picture.__file__, style.__file__):
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
    "limit-picture": limit_picture,
}
