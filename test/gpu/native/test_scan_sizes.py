"""The smoothness scan's arithmetic. Needs no GPU."""

from __future__ import annotations

import pytest
import scan_sizes


def test_sizes_hold_the_round_ones_and_their_neighbours() -> None:
    sizes = scan_sizes.sizes()
    assert sizes == sorted(set(sizes))
    assert {64, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025} <= set(sizes)
    assert sizes[0] >= scan_sizes.LEAST
    assert sizes[-1] <= scan_sizes.MOST


def test_a_power_law_has_ratio_one() -> None:
    times = {n: 1e-7 * n**2.3 for n in scan_sizes.sizes()}
    found = scan_sizes.ratios(times)
    assert len(found) >= len(times) - 2
    assert all(ratio == pytest.approx(1) for _, ratio in found)


def test_a_notch_shows_at_its_size_only() -> None:
    times = {n: 1e-7 * n**2.3 * (1.2 if n == 513 else 1) for n in scan_sizes.sizes()}
    found = dict(scan_sizes.ratios(times))
    assert found[513] == pytest.approx(1.2)
    assert found[512] == pytest.approx(1)
    assert scan_sizes.worst(found.items(), 1)[0][0] == 513
    assert max(ratio for n, ratio in found.items() if n != 513) < 1.01


def test_no_prediction_without_neighbours_on_both_sides() -> None:
    assert scan_sizes.predicted(64, {64: 1.0, 70: 1.1, 75: 1.2}) is None
    assert scan_sizes.ratios({64: 1.0}) == []
