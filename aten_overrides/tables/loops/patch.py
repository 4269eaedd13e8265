"""The patches' LoopThresholds.h: which loops of ATen run on auxiliary streams, fitted to the same
table as the package's, and for syevd to that of eigh.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from aten_overrides._names import DTYPES
from aten_overrides.tables.eigh.table import EighTable
from aten_overrides.tables.loops.fit import BATCHED, LEADS, LOOPED, NEVER_ENDS, PAIR, STREAMED
from aten_overrides.tables.loops.table import LoopTable

WIDTH = 100
# In the order of LoopThresholds.h, by the routine and the time that stands for ATen's own way.
# None: not measured.
LOOPS: Mapping[str, tuple[str, str] | None] = {
    "Getrs": None,
    "Potrf": ("potrf", BATCHED),
    "Potrs": ("potrs", LOOPED),
    "Geqrf": ("geqrf", LOOPED),
    "Orgqr": ("orgqr", LOOPED),
    "Ormqr": ("ormqr", LOOPED),
    "Syevd": ("syevd", LOOPED),
    "Syevj": None,
}
WHY_NOT_MEASURED = {"Getrs": "not measured; ATen loops for at most two matrices"}
LEAD = LEADS["loop"]  # by how much a size has to be ahead, in the geometric mean
WORST = 0.85  # of any single problem
LEAST_BATCH = 2
ANY = NEVER_ENDS


@dataclass(frozen=True)
class Gain:
    """How many times as fast as ATen's own way four streams were; ``pair``: two streams over the
    loop, None where it was not measured.
    """

    dtype: str
    batch: int
    n: int
    times: float
    pair: float | None


@dataclass(frozen=True)
class Threshold:
    """A row of the header; NEVER_ENDS as the least n: the loop stays as it is."""

    least_n: int
    least_batch: int
    most_batch: int


NEVER = Threshold(NEVER_ENDS, NEVER_ENDS, ANY)


def gains_of(routine: str, rival: str, table: LoopTable, eigh: EighTable) -> list[Gain]:
    """The gains of a routine over all problems where both times were measured."""
    if routine == "syevd":
        return [
            Gain(p.dtype, p.batch, p.n, p.ms["looped_cusolver"] / p.ms["streamed_cusolver"], None)
            for p in (eigh.points if table.points else ())
            if p.batch >= LEAST_BATCH and {"looped_cusolver", "streamed_cusolver"} <= p.ms.keys()
        ]
    return [
        Gain(
            p.dtype,
            p.batch,
            p.n,
            p.ms[rival] / p.ms[STREAMED],
            p.ms[LOOPED] / p.ms[PAIR] if {LOOPED, PAIR} <= p.ms.keys() else None,
        )
        for p in table.points
        if p.routine == routine and {rival, STREAMED} <= p.ms.keys()
    ]


def _whole_sizes(gains: Sequence[Gain]) -> list[int]:
    """The n at which every dtype was measured, as a row holds for all of them."""
    dtypes: dict[int, set[str]] = {}
    for gain in gains:
        dtypes.setdefault(gain.n, set()).add(gain.dtype)
    return sorted(n for n, there in dtypes.items() if there == set(DTYPES))


def threshold_of(gains: Sequence[Gain]) -> Threshold:
    """The row of a loop: the most matrices, and with them the smallest n, from which on streams are
    ahead at every n by LEAD in the mean and nowhere behind by more than WORST.
    """
    batches = sorted({gain.batch for gain in gains})
    for most in reversed(batches):
        least = None
        for n in reversed(_whole_sizes(gains)):
            here = [gain.times for gain in gains if gain.n == n and gain.batch <= most]
            if not here or geometric_mean(here) < LEAD or min(here) < WORST:
                break
            least = n
        if least is not None:
            bound = ANY if most == batches[-1] else most
            return Threshold(least, _least_batch(gains), bound)
    return NEVER


def _least_batch(gains: Sequence[Gain]) -> int:
    """Two where two streams gain at the smallest measured batch, or where that was not asked."""
    smallest = min(gain.batch for gain in gains)
    pairs = [gain.pair for gain in gains if gain.batch == smallest and gain.pair is not None]
    return smallest if pairs and geometric_mean(pairs) < LEAD else LEAST_BATCH


def fit(table: LoopTable, eigh: EighTable) -> dict[str, Threshold]:
    """The rows of all loops."""
    found = {}
    for loop, source in LOOPS.items():
        gains = gains_of(*source, table, eigh) if source else []
        found[loop] = threshold_of(gains) if gains else NEVER
    return found


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f}-{max(values):.2f}"


def _remark(loop: str, gains: Sequence[Gain], row: Threshold) -> str:
    if not gains:
        return WHY_NOT_MEASURED.get(loop, "not measured")
    taken = [g for g in gains if g.n >= row.least_n and g.batch <= row.most_batch]
    if row == NEVER:
        return _range([g.times for g in gains])
    source = LOOPS[loop]
    of = " of potrfBatched" if source and source[1] == BATCHED else ""
    beyond = [g.times for g in gains if g.n >= row.least_n and g.batch > row.most_batch]
    told = f"{_range([g.times for g in taken])}{of}"
    return f"{told}; beyond that batch {_range(beyond)}" if beyond else told


def _number(value: int, name: str) -> str:
    return name if value == NEVER_ENDS else str(value)


def _rows(table: LoopTable, eigh: EighTable) -> Iterator[str]:
    fitted = fit(table, eigh)
    texts = {
        loop: f"{{Loop::{loop}, {_number(row.least_n, 'kNever')}, "
        f"{_number(row.least_batch, 'kNever')}, {_number(row.most_batch, 'kAny')}}},"
        for loop, row in fitted.items()
    }
    width = max(map(len, texts.values()))
    for loop, text in texts.items():
        source = LOOPS[loop]
        gains = gains_of(*source, table, eigh) if source else []
        yield f"    {text:<{width}}  // {_remark(loop, gains, fitted[loop])}"


def _sizes(name: str, values: Sequence[int]) -> str:
    return f"{name} {min(values)} to {max(values)}"


def _comment(module: str, table: LoopTable, eigh: EighTable) -> Iterator[str]:
    yield f"// Do not edit: generated by `python -m {module} --write`."
    yield "//"
    if not table.points:
        yield "// Nothing has been measured yet, so every loop stays on one stream."
        return
    meta = table.meta
    loops = [g for s in LOOPS.values() if s and s[0] != "syevd" for g in gains_of(*s, table, eigh)]
    syevd = gains_of("syevd", LOOPED, table, eigh)
    text = (
        f"How many times as fast as the loop four streams were on one {table.gpu} "
        f"({meta['date']}; driver {meta['driver']}, torch {meta['torch']}, cuSOLVER "
        f"{meta['cusolver']}): {_sizes('batch', [g.batch for g in loops])}, "
        f"{_sizes('n', [g.n for g in loops])}"
    )
    if syevd:
        text += (
            f"; syevd of {_sizes('batch', [g.batch for g in syevd])}, "
            f"{_sizes('n', [g.n for g in syevd])}"
        )
    text += (
        f". A loop is on from the n on where they gain {LEAD - 1:.0%} in the geometric mean at "
        f"this and every larger n, all dtypes measured, and none falls below {WORST} times. "
        "Smaller batches were not measured; they are taken as well where two streams "
        "gained too."
    )
    yield from (f"// {line}" for line in textwrap.wrap(text, WIDTH - 3, break_on_hyphens=False))


def header(module: str, table: LoopTable, eigh: EighTable) -> str:
    """Text of csrc/linalg/LoopThresholds.h; ``module``: what generates it."""
    return TEMPLATE.replace("@COMMENT@", "\n".join(_comment(module, table, eigh))).replace(
        "@ROWS@", "\n".join(_rows(table, eigh))
    )


TEMPLATE = """\
#pragma once

// Which loops of cuSOLVER calls over a batch run on auxiliary streams: the one place where each of
// them is turned on or off. Neither CUDA nor ATen is used here.
//
@COMMENT@

#include <cstddef>
#include <cstdint>
#include <limits>

namespace at::native::solver_lanes {

enum class Loop : int8_t {
  Getrs,
  Potrf,  // in place of potrfBatched, to which a batch goes otherwise
  Potrs,
  Geqrf,
  Orgqr,
  Ormqr,
  Syevd,
  Syevj,
};

// n is the order of the square matrices, and the number of reflectors of a matrix for the three
// loops of QR. All three conditions have to hold.
struct LoopThreshold {
  Loop loop;
  int64_t least_n;
  int64_t least_batch;
  int64_t most_batch;
};

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

inline constexpr LoopThreshold kLoopThresholds[] = {
@ROWS@
};

// Whether the loop takes less time on auxiliary streams.
constexpr bool streams_gain(Loop loop, int64_t n, int64_t batch) noexcept {
  const auto& threshold = kLoopThresholds[static_cast<size_t>(loop)];
  return n >= threshold.least_n && batch >= threshold.least_batch && batch <= threshold.most_batch;
}

constexpr bool every_loop_at_its_place() noexcept {
  size_t place = 0;
  for (const auto& threshold : kLoopThresholds) {
    if (static_cast<size_t>(threshold.loop) != place++ || threshold.least_batch < 2) {
      return false;
    }
  }
  return place == static_cast<size_t>(Loop::Syevj) + 1;
}

static_assert(every_loop_at_its_place(), "kLoopThresholds: one row for each Loop, in its order");

}  // namespace at::native::solver_lanes
"""
