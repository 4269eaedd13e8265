"""The picture of the 511 -> 512 cliff, from a record's points or from points measured just now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OP, DTYPE = "solve_ex", "float32"
BELOW, AT = 511, 512
# Okabe and Ito's palette: told apart by colour-blind readers, and by lightness in print.
COLOURS = {"stock": "#D55E00", "patched": "#0072B2"}
NAMES = {"stock": "stock wheel", "patched": "with the patches"}
TITLES = {"cusolver": 'preference "cusolver"', "default": "no preference set"}


@dataclass(frozen=True)
class Curve:
    """Times of one library at one n: (batch, milliseconds), by batch."""

    library: str  # "stock" or "patched"
    n: int
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Cliff:
    """Curves by preference, and what they were measured on."""

    gpu: str
    torch: str
    date: str
    panels: Mapping[str, tuple[Curve, ...]]


def newest_record(folder: Path, topic: str) -> Path | None:
    """The record of that topic with the latest date; None when there is none."""
    dated = []
    for path in sorted(folder.glob(f"{topic}-*.json")):
        meta = json.loads(path.read_text(encoding="utf-8"))["meta"]
        if meta.get("topic", topic) == topic:  # not one of a topic that begins alike
            dated.append((str(meta.get("date", "")), path))
    return max(dated)[1] if dated else None


def _library(name: str) -> str | None:
    """Which curve a point's library belongs to; the patched one with the wheel's MAGMA counts."""
    return {"stock": "stock", "patched": "patched", "patched-magma": "patched"}.get(name)


def read_cliff(meta: Mapping[str, Any], points: Iterable[Mapping[str, Any]]) -> Cliff:
    """Picks the cliff's points: solve_ex, float32, n = 511 and 512, stock and patched."""
    found: dict[str, dict[tuple[str, int], dict[int, float]]] = {name: {} for name in TITLES}
    for row in points:
        library = _library(str(row.get("library", "")))
        preference = str(row.get("preference", ""))
        wanted = row["op"] == OP and row["dtype"] == DTYPE and row["n"] in (BELOW, AT)
        if not wanted or library is None or preference not in found or row["m"] != row["n"]:
            continue
        found[preference].setdefault((library, row["n"]), {})[row["batch"]] = float(row["ms"])
    panels = {
        preference: tuple(
            Curve(library, n, tuple(sorted(times.items())))
            for (library, n), times in sorted(curves.items(), key=lambda pair: pair[0])
        )
        for preference, curves in found.items()
        if curves
    }
    return Cliff(str(meta["gpu"]), str(meta["torch"]), str(meta["date"]), panels)


def steps(curves: Sequence[Curve], library: str) -> dict[int, float]:
    """By batch: how many times longer n = 512 takes than n = 511."""
    times = {curve.n: dict(curve.points) for curve in curves if curve.library == library}
    below, at = times.get(BELOW, {}), times.get(AT, {})
    return {batch: at[batch] / below[batch] for batch in below if batch in at}


def summary(cliff: Cliff) -> str:
    """The steps in words, one line a preference."""
    lines = []
    for preference, curves in cliff.panels.items():
        parts = []
        for library in COLOURS:
            ratios = steps(curves, library)
            if ratios:
                worst = max(ratios, key=lambda batch: ratios[batch])
                parts.append(f"{NAMES[library]} {ratios[worst]:.2f}x (batch {worst})")
        lines.append(f"{TITLES[preference]}: largest step from 511 to 512: {', '.join(parts)}")
    return "\n".join(lines)


def draw(cliff: Cliff, path: Path, *, metadata: Mapping[str, str] | None = None) -> None:
    """Writes the PNG, 1600 pixels wide and legible at 800; ValueError when there is no curve."""
    if not cliff.panels:
        raise ValueError("no point of the cliff is among the data")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    with pyplot.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = pyplot.subplots(
            1, len(cliff.panels), figsize=(8, 4), sharey=True, squeeze=False, layout="constrained"
        )
        for axis, (preference, curves) in zip(axes[0], cliff.panels.items(), strict=True):
            for curve in curves:
                batches, times = zip(*curve.points, strict=True)
                axis.plot(
                    batches,
                    times,
                    color=COLOURS[curve.library],
                    linestyle="-" if curve.n == AT else "--",
                    marker="o" if curve.n == AT else "s",
                    markerfacecolor=COLOURS[curve.library] if curve.n == AT else "white",
                    markersize=7 if curve.library == "stock" else 4.5,
                    zorder=2 if curve.library == "stock" else 3,
                    label=f"{NAMES[curve.library]}, n = {curve.n}",
                )
            _annotate(axis, curves)
            axis.set(
                xscale="log", yscale="log", title=TITLES[preference], xlabel="matrices in the batch"
            )
            batches_seen = sorted({batch for curve in curves for batch, _ in curve.points})
            axis.set_xticks(batches_seen, [str(batch) for batch in batches_seen])
            axis.minorticks_off()
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
        axes[0][0].set_ylabel("milliseconds a call")
        handles, labels = axes[0][0].get_legend_handles_labels()
        order = sorted(range(len(labels)), key=lambda i: labels[i], reverse=True)
        figure.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            loc="outside lower center",
            ncols=2,
            frameon=False,
        )
        figure.suptitle(
            f"torch.linalg.{OP}, {DTYPE}, one right-hand side\n"
            f"{cliff.gpu}, torch {cliff.torch}, {cliff.date}",
            fontsize=11,
        )
        temporary = path.with_name(f".{path.name}")
        figure.savefig(temporary, dpi=200, format="png", metadata=dict(metadata or {}))
        pyplot.close(figure)
    temporary.replace(path)


def _annotate(axis: Any, curves: Sequence[Curve]) -> None:
    """Writes the stock wheel's largest step beside its curve, if there is one to speak of."""
    ratios = steps(curves, "stock")
    worst = max(ratios, key=lambda batch: ratios[batch], default=0)
    if not worst or ratios[worst] < 1.5:
        return
    times = {curve.n: dict(curve.points)[worst] for curve in curves if curve.library == "stock"}
    axis.annotate(
        "",
        xy=(worst, times[AT]),
        xytext=(worst, times[BELOW]),
        arrowprops={"arrowstyle": "->", "color": "#333333", "shrinkA": 6, "shrinkB": 6},
    )
    middle = (times[AT] * times[BELOW]) ** 0.5
    axis.annotate(
        f"{ratios[worst]:.1f}x",
        xy=(worst, middle),
        xytext=(-9, -14),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=11,
        fontweight="bold",
    )
