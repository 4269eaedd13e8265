"""Pictures of a record's points: share of the limit over n, rivals beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides.bench.report import Point, rival_of
from aten_overrides.measure import style

MARKERS = "osD^vPX*"
FIRST = ("overrides", "stock, default")  # in the first two colours, thick
# Who is drawn before others where there are more curves than colours.
NEXT = ("stock, cusolver", "cupy", "jax", "batched_cublas", "looped_cusolver", "streamed_cusolver")


def curves(points: Sequence[Point], op: str, dtype: str, batch: int) -> dict[str, list[Any]]:
    """By rival: (n, share of the limit), by n; the fewest right-hand sides only, and no more rivals
    than there are colours.
    """
    mine = [
        point
        for point in points
        if (point["op"], point["dtype"], point["batch"]) == (op, dtype, batch)
        and "limit_share" in point
    ]
    least = min((point["nrhs"] for point in mine), default=0)
    found: dict[str, list[Any]] = {}
    for point in sorted(mine, key=lambda one: one["n"]):
        if point["nrhs"] == least:
            found.setdefault(rival_of(point), []).append((point["n"], point["limit_share"]))
    order = [name for name in dict.fromkeys([*FIRST, *NEXT, *found]) if name in found]
    return {name: found[name] for name in order[: len(style.PALETTE)]}


def panels(points: Sequence[Point], most: int = 2) -> list[tuple[str, str, int]]:
    """The (op, dtype, batch) with the most sizes: those worth a picture."""
    sizes: dict[tuple[str, str, int], set[int]] = {}
    for point in points:
        if "limit_share" in point:
            key = (point["op"], point["dtype"], point["batch"])
            sizes.setdefault(key, set()).add(point["n"])
    wide = [key for key, found in sizes.items() if len(found) >= 2]
    return sorted(wide, key=lambda key: -len(sizes[key]))[:most]


def draw_limit(
    meta: Mapping[str, Any],
    points: Sequence[Point],
    path: Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Share of the limit over n. UserError if no operation was timed at two sizes or more."""
    chosen = panels(points)
    if not chosen:
        raise UserError("--png needs an operation timed at two sizes or more; the grid has none")
    plt = style.pyplot()
    figure, axes = plt.subplots(
        1,
        len(chosen),
        figsize=(style.WIDTH, 4.2),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    handles: dict[str, Any] = {}
    names = list(dict.fromkeys(name for key in chosen for name in curves(points, *key)))
    for axis, (op, dtype, batch) in zip(axes[0], chosen, strict=True):
        found = curves(points, op, dtype, batch)
        for name, values in found.items():
            index = names.index(name)
            number = index % len(style.PALETTE)
            (line,) = axis.plot(
                *zip(*values, strict=True),
                color=style.PALETTE[number],
                marker=MARKERS[(number + index // len(style.PALETTE)) % len(MARKERS)],
                markersize=4.5,
                linewidth=2 if name in FIRST else 1,
                linestyle="-" if name in FIRST else "--",
            )
            handles.setdefault(name, line)
        ticks = sorted({n for values in found.values() for n, _ in values})
        style.plain_log_axis(axis, ticks if len(ticks) < 8 else ticks[::2])
        axis.set(yscale="log", xlabel="n", title=f"{op}, {dtype}, batch {batch}")
        axis.set_ylim(top=1.3)
        axis.axhline(1, color=style.DARK, linewidth=1)
        axis.grid(visible=True, which="major", color=style.LIGHT, linewidth=0.7)
    axes[0][0].set_ylabel("share of the limit")
    axes[0][0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False
    )
    figure.suptitle(
        "Limit: nominal work at the speed of a matrix product, or memory read and written once\n"
        f"{meta['gpu'] or meta.get('cpu')}, torch {meta['torch']}, {meta['date']}",
        fontsize=10,
    )
    style.save(figure, path, metadata)
