"""The search on curves whose cliffs are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from aten_overrides.scan.kinds import Finding, classify
from aten_overrides.scan.search import OutOfTime, Search, Settings, Skipped, spread_order
from aten_overrides.scan.selftest import search_curve, self_test
from aten_overrides.scan.series import Samples, biweight, rank_distance, theil_sen, weighted_median
from aten_overrides.scan.synthetic import BUSY, SyntheticCurve

Shape = Callable[[int], float]


def findings_of(shape: Shape, sizes: range, seed: int = 1) -> list[Finding]:
    return list(search_curve(shape, sizes, seed).findings)


def test_finds_planted_notches_and_raises_few_alarms() -> None:
    result = self_test(planted=100, clean=100, seed=50_000)
    assert result.found >= 95, str(result)
    assert result.alarms <= 1, str(result)
    assert result.same_kind >= 0.85 * result.found
    assert result.good


def test_a_busy_machine_hides_no_notch() -> None:
    assert self_test(planted=40, clean=1, seed=60_000, outliers=BUSY).found >= 38


def test_a_busy_machine_raises_few_alarms() -> None:
    assert self_test(planted=1, clean=40, seed=61_000, outliers=BUSY).alarms <= 1


def test_a_self_test_that_misses_is_not_good() -> None:
    missed = self_test(planted=10, clean=10, seed=1)
    assert not type(missed)(**{**vars(missed), "found": 9}).good
    assert not type(missed)(**{**vars(missed), "alarms": 1}).good


@pytest.mark.parametrize(
    ("shape", "kind", "direction", "until"),
    [
        (lambda n: 1.5 if n >= 510 else 1.0, "step", "slower", None),
        (lambda n: 1.5 if 510 <= n < 525 else 1.0, "drop", "slower", 524),
        (lambda n: 1.5 if n == 510 else 1.0, "drop", "slower", 510),
        (lambda n: 1.5 ** math.exp((510 - n) / 12) if n >= 510 else 1.0, "tooth", "slower", None),
        (lambda n: 1.5 if n < 510 else 1.0, "step", "faster", None),
    ],
)
def test_kinds(shape: Shape, kind: str, direction: str, until: int | None) -> None:
    found = findings_of(lambda n: (n / 500) ** 2 * shape(n), range(480, 545))
    assert [(one.size, one.kind, one.direction, one.until) for one in found] == [
        (510, kind, direction, until)
    ]
    assert found[0].below == 509
    assert found[0].low < 1.5 < found[0].high
    assert isinstance(found[0].confidence, float) and found[0].confidence > 0.99


def test_teeth_with_a_period() -> None:
    def shape(n: int) -> float:
        return n**2 * math.exp(0.4 * (1 - (n - 1) % 64 / 64))

    found = findings_of(shape, range(200, 521))
    assert [one.size for one in found] == [257, 321, 385, 449, 513]
    assert {one.kind for one in found[:4]} == {"tooth"}
    assert {one.period for one in found if one.kind == "tooth"} == {64}


def test_a_wide_range_is_bisected_to_the_exact_size() -> None:
    search = Search(
        SyntheticCurve(lambda n: n**3 * (1.3 if n >= 1777 else 1), 5), range(16, 4097), Settings()
    )
    verdicts = search.run()
    found = classify(search.samples, verdicts, 1.12)
    assert [(one.below, one.size) for one in found] == [(1776, 1777)]
    assert len(search.samples.sizes()) < 150


def test_samples_are_interleaved() -> None:
    order: list[int] = []

    class Curve(SyntheticCurve):
        def sample(self, size: int) -> float:
            order.append(size)
            return super().sample(size)

    Search(Curve(lambda n: 1.0, 2), range(10, 30), Settings()).run()
    rounds = [order[i : i + 20] for i in range(0, 100, 20)]
    assert all(sorted(one) == list(range(10, 30)) for one in rounds)
    assert rounds[0] != rounds[1] and rounds[0] != sorted(rounds[0])


class SkippingCurve(SyntheticCurve):
    """Cannot measure some sizes."""

    def first(self, size: int) -> float:
        if size in (126, 127) or size > 170:
            raise Skipped(f"no {size}")
        return super().first(size)


def test_skipped_sizes_have_their_reason_and_do_not_hide_a_cliff() -> None:
    curve = SkippingCurve(lambda n: 2.0 if n >= 127 else 1.0, 4)
    search = Search(curve, range(100, 181), Settings())
    found = classify(search.samples, search.run(), 1.12)
    assert [(one.below, one.size) for one in found] == [(125, 128)]
    assert search.skipped == {n: f"no {n}" for n in (126, 127, *range(171, 181))}


def test_the_time_ends() -> None:
    clock = {"left": 60.0}

    class Curve(SyntheticCurve):
        def sample(self, size: int) -> float:
            clock["left"] -= 0.1
            return super().sample(size)

    curve = Curve(lambda n: 0.1 * (2.0 if n >= 512 else 1.0), 7)
    search = Search(curve, range(16, 1024), Settings(), left=lambda: clock["left"])
    search.run()
    assert len(search.samples.sizes()) < 96  # fewer sizes, so that there is time for the cliff
    assert search.complete
    found = classify(search.samples, search.verdicts(), 1.12)
    assert [one.size for one in found] == [512]
    clock["left"] = 5.0
    search = Search(curve, range(16, 1024), Settings(), left=lambda: clock["left"])
    search.run()
    assert not search.complete
    assert all(one.ambiguous for one in classify(search.samples, search.verdicts(), 1.12))


def test_a_search_goes_on_where_it_was_ended() -> None:
    left = {"samples": 120}

    class Curve(SyntheticCurve):
        def sample(self, size: int) -> float:
            left["samples"] -= 1
            if left["samples"] < 0:
                raise OutOfTime
            return super().sample(size)

    def shape(n: int) -> float:
        return 2.0 if n >= 127 else 1.0

    search = Search(Curve(shape, 4), range(100, 181), Settings())
    search.run()
    assert not search.complete
    before = list(search.samples.rounds())
    again = Search(Curve(shape, 5), range(100, 181), Settings())
    for size, number, seconds in before:
        again.samples.add(size, number, seconds)
        again.round = max(again.round, number)
    left["samples"] = 10_000
    verdicts = again.run()
    assert again.complete
    assert set(before) < set(again.samples.rounds())
    assert [one.size for one in classify(again.samples, verdicts, 1.12)] == [127]
    assert all(again.samples.count(size) < 30 for size in again.samples.sizes())


def test_spread_order() -> None:
    assert spread_order(range(9)) == [0, 8, 4, 2, 6, 1, 3, 5, 7]
    assert sorted(spread_order(range(100))) == list(range(100))
    assert spread_order([3, 5]) == [3, 5]


def test_estimates() -> None:
    assert biweight([1.0, 1.1, 0.9, 1.0, 9.0, 8.0], 0.1) == pytest.approx(1.0, abs=0.05)
    assert weighted_median([(1.0, 1.0), (2.0, 1.0), (9.0, 3.0)]) == 9.0
    assert theil_sen([(0, 0), (1, 2), (2, 4), (3, 99)]) == pytest.approx(2.0, abs=30)
    assert theil_sen([(0, 1)]) == 0.0
    samples = Samples()
    with pytest.raises(ValueError, match="above 0"):
        samples.add(3, 1, 0.0)
    assert samples.jumps() == []
    assert rank_distance([1.0, 2.0], [1.0, 2.0]) == 0.0
    assert rank_distance([0.0] * 6, [1.0] * 6) == pytest.approx(2.88, abs=0.01)
    assert rank_distance([1.0] * 6, [0.0] * 6) == pytest.approx(-2.88, abs=0.01)
