"""A scan as a picture: the curve with its cliffs, and the worst one's kernels on one time axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aten_overrides.measure import style
from aten_overrides.scan.kernels import Trace
from aten_overrides.scan.report import milliseconds
from aten_overrides.scan.run import Explained, Scan

MOST_MARKED = 8
NAMED_KERNELS = 6


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
    axis.set(xlabel="n", ylabel=unit, ylim=(0, None))
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
    """A colour for each of the kernels that take most time on both sides together."""
    totals: dict[str, float] = {}
    for trace in traces:
        for name, _, total in trace.names:
            totals[name] = totals.get(name, 0.0) + total
    named = sorted(totals, key=lambda name: -totals[name])[:NAMED_KERNELS]
    return dict(zip(named, style.PALETTE, strict=False))


def _kernels(axis: Any, worst: Explained) -> None:
    traces = [trace for trace in worst.traces if trace is not None]
    colours = _colours(traces)
    span = max(trace.span for trace in traces)
    scale, unit = (1e-3, "milliseconds") if span > 1000 else (1.0, "microseconds")
    ticks, labels = [], []
    row = 0.0
    for side, trace in zip(worst.sides, traces, strict=True):
        lanes = max((bar.lane for bar in trace.bars), default=0) + 1
        height = 1 / lanes
        for bar in trace.bars:
            axis.barh(
                row + bar.lane * height,
                max(bar.length, span / 4000) * scale,
                left=bar.start * scale,
                height=0.8 * height,
                align="edge",
                color=colours.get(bar.name, style.PALETTE[-1]),
                linewidth=0,
            )
        ticks.append(row + 0.4)
        chosen = f"\n{side.chosen}" if side.chosen else ""
        labels.append(
            f"n = {side.size}{chosen}\n{trace.launches} {trace.what}\n{milliseconds(side.ms)}"
        )
        row += 1.2
    axis.set_yticks(ticks, labels, fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel=f"{unit} from the first {traces[0].what.removesuffix('s')}'s start")
    handles = [axis.barh(0, 0, color=colour) for colour in colours.values()]
    names = [name if len(name) <= 40 else f"{name[:37]}..." for name in colours]
    if any(bar.name not in colours for trace in traces for bar in trace.bars):
        handles.append(axis.barh(0, 0, color=style.PALETTE[-1]))
        names.append("others")
    axis.legend(
        handles,
        names,
        fontsize=7,
        ncols=2,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.45, -0.28),
    )
