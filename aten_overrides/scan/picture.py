"""A scan as a picture: the curve with its cliffs, and the worst one's kernels on one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aten_overrides.measure import style
from aten_overrides.scan.backends import Side
from aten_overrides.scan.kernels import Trace
from aten_overrides.scan.report import milliseconds
from aten_overrides.scan.run import Explained, Scan

MOST_MARKED = 8
WIDE = 20.0  # largest over smallest value from which the axis is logarithmic
NAMED_KERNELS = 7


def worst_traced(scan: Scan) -> Explained | None:
    """The certain finding of the largest factor that has a trace of both sides."""
    traced = [
        one
        for one in scan.findings
        if len(one.traces) == 2 and all(one.traces) and not one.finding.ambiguous
    ]
    return max(traced, key=lambda one: one.finding.factor, default=None)


def draw(scan: Scan, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the PNG. UserError without matplotlib or without a measured size."""
    plt = style.pyplot()
    worst = worst_traced(scan)
    rows, heights = (2, (3.2, 2.4)) if worst else (1, (3.6,))
    figure, axes = plt.subplots(
        rows,
        1,
        figsize=(style.WIDTH, sum(heights)),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": heights},
    )
    _curve(axes[0][0], scan)
    if worst is not None:
        _kernels(axes[1][0], worst)
    meta = scan.meta
    figure.suptitle(
        f"{scan.target}\n{meta['gpu'] or meta.get('cpu')}, torch {meta['torch']}, {meta['date']}",
        fontsize=10,
    )
    style.save(figure, path, metadata)


def _curve(axis: Any, scan: Scan) -> None:
    sizes = list(scan.levels)
    if scan.work is not None:
        scale, unit = 1e-9, "GFLOP/s (nominal)"
        work = scan.work
    else:
        scale, unit = 1e-3, "calls per millisecond"
        work = dict.fromkeys(sizes, 1.0)
    middle = [scale * work[n] / scan.levels[n][0] for n in sizes]
    low = [scale * work[n] / scan.levels[n][2] for n in sizes]
    high = [scale * work[n] / scan.levels[n][1] for n in sizes]
    axis.fill_between(sizes, low, high, color=style.BLUE, alpha=0.2, linewidth=0)
    axis.plot(sizes, middle, color=style.BLUE, marker="o", markersize=2.5, linewidth=1)
    axis.set(xlabel="n", ylabel=unit)
    if middle and max(middle) > WIDE * min(middle):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axis.set_ylim(0, None)
    axis.grid(visible=True, color=style.LIGHT, linewidth=0.7)
    certain = sorted(
        (one.finding for one in scan.findings if not one.finding.ambiguous),
        key=lambda one: -one.factor,
    )[:MOST_MARKED]
    for finding in scan.findings:
        if finding.finding.ambiguous:
            axis.axvline(
                finding.finding.size - 0.5, color=style.PALETTE[-1], linestyle=":", linewidth=1
            )
    for number, one in enumerate(sorted(certain, key=lambda finding: finding.size)):
        axis.axvline(one.size - 0.5, color=style.RED, linestyle="--", linewidth=1.2)
        axis.annotate(
            f" {one.kind} at {one.size}\n {one.factor:.2f}x",
            xy=(one.size - 0.5, 0.02 + 0.14 * (number % 3)),
            xycoords=("data", "axes fraction"),
            va="bottom",
            ha="left",
            fontsize=8,
            color=style.DARK,
        )


def _colours(traces: list[Trace]) -> dict[str, str]:
    """A colour for each of the kernels that take most of the time, each trace's counted alike."""
    shares: dict[str, float] = {}
    for trace in traces:
        whole = sum(total for _, _, total in trace.names) or 1.0
        for name, _, total in trace.names:
            shares[name] = shares.get(name, 0.0) + total / whole
    named = sorted(shares, key=lambda name: -shares[name])[:NAMED_KERNELS]
    return dict(zip(named, style.PALETTE, strict=False))


def _kernels(axis: Any, worst: Explained) -> None:
    rows = [
        (label(side, trace), trace)
        for side, trace in zip(worst.sides, worst.traces, strict=True)
        if trace is not None
    ]
    colours = _colours([trace for _, trace in rows])
    _bars(axis, rows, colours, max(trace.span for _, trace in rows))
    _legend(axis, rows, colours, {"bbox_to_anchor": (0.45, -0.28), "loc": "upper center"})


def label(side: Side, trace: Trace, who: str = "") -> str:
    """What a row of kernels is of, in two or three lines."""
    chosen = ", ".join(part.rpartition(": ")[2] for part in side.chosen.split(", "))
    what = f"{who}, n = {side.size}" if who else f"n = {side.size}"
    parts = [f"{what}: {milliseconds(side.ms)}", *[chosen] * bool(chosen)]
    return "\n".join([*parts, f"{trace.launches} {trace.what}"])


def _bars(
    axis: Any, rows: Sequence[tuple[str, Trace]], colours: Mapping[str, str], span: float
) -> None:
    """Rows of kernels on one time axis of ``span`` microseconds."""
    scale, unit = (1e-3, "milliseconds") if span > 1000 else (1.0, "microseconds")
    for row, (_, trace) in enumerate(rows):
        height = 1 / (max((bar.lane for bar in trace.bars), default=0) + 1)
        for bar in trace.bars:
            if bar.start > span:
                continue
            axis.barh(
                1.2 * row + bar.lane * height,
                max(bar.length, span / 4000) * scale,
                left=bar.start * scale,
                height=0.8 * height,
                align="edge",
                color=colours.get(bar.name, style.PALETTE[-1]),
                linewidth=0,
            )
    axis.set_yticks([1.2 * row + 0.4 for row in range(len(rows))], [words for words, _ in rows])
    axis.tick_params(axis="y", labelsize=8, length=0)
    axis.set_xlim(0, span * scale)
    axis.invert_yaxis()
    what = rows[0][1].what.removesuffix("s")
    axis.set(xlabel=f"{unit} from the first {what}'s start")


def _legend(
    place: Any,
    rows: Sequence[tuple[str, Trace]],
    colours: Mapping[str, str],
    where: Mapping[str, Any],
) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour) for colour in colours.values()]
    names = [name if len(name) <= 40 else f"{name[:37]}..." for name in colours]
    if any(bar.name not in colours for _, trace in rows for bar in trace.bars):
        handles.append(Patch(color=style.PALETTE[-1]))
        names.append("others")
    place.legend(handles, names, fontsize=8, ncols=3, frameon=False, **where)


def draw_timelines(
    rows: Sequence[tuple[str, Trace]],
    title: str,
    path: Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """The kernels of several calls on one time axis, and its beginning enlarged: as much as the
    shortest call takes. UserError without matplotlib.
    """
    plt = style.pyplot()
    spans = sorted(trace.span for _, trace in rows)
    views = [spans[-1]] if spans[0] > spans[-1] / 3 else [spans[-1], 1.1 * spans[0]]
    figure, axes = plt.subplots(
        len(views),
        1,
        figsize=(style.WIDTH, 1.8 + 0.6 * len(rows) + 0.4 * len(rows) * (len(views) - 1)),
        squeeze=False,
        gridspec_kw={"height_ratios": [0.6, 0.4][: len(views)]},
        layout="constrained",
    )
    colours = _colours([trace for _, trace in rows])
    _bars(axes[0][0], rows, colours, views[0])
    if len(views) > 1:
        short = [(words.partition("\n")[0], trace) for words, trace in rows]
        _bars(axes[1][0], short, colours, views[1])
        axes[1][0].set_title("the beginning, enlarged", fontsize=9, loc="left")
    _legend(figure, rows, colours, {"loc": "outside lower center"})
    figure.suptitle(title, fontsize=10)
    style.save(figure, path, metadata)
