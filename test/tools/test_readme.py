"""tools/readme: generated parts, and that every kind of drift is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

from aotools import plot, readme
from aotools.env import UserError
from aotools.patchset import base

META = {
    "topic": "patchset",
    "command": "tools/gpu-test patchset --out /tmp/x",
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "date": "2026-11-30",
}


def rows(scale: float = 1.0) -> list[dict[str, object]]:
    """Points of a record: solve_ex at two batches."""
    times = {
        ("stock", 511): (8.4, 18.8),
        ("stock", 512): (13.9, 216.0),
        ("patched-magma", 511): (5.91, 18.8),
        ("patched-magma", 512): (5.6, 17.8 * scale),
    }
    return [
        {"op": "solve_ex", "dtype": "float32", "m": n, "n": n, "batch": batch, "ms": ms}
        | {"library": library, "preference": "cusolver"}
        for (library, n), pair in times.items()
        for batch, ms in zip((16, 256), pair, strict=True)
    ]


def other(op: str, library: str, batch: int, **more: object) -> dict[str, object]:
    """A point of another part of the record."""
    point = {"op": op, "dtype": "float32", "m": 512, "n": 512, "batch": batch, "ms": 1.0}
    return point | {"library": library, "preference": "cusolver", "backend": "choice"} | more


OTHERS = [
    other("lu_factor_ex", "unpatched-nomagma", 1, allocations=4),
    other("lu_factor_ex", "unpatched-nomagma", 16, allocations=19),
    other("lu_factor_ex", "patched-nomagma", 1, allocations=4),
    other("lu_factor_ex", "patched-nomagma", 16, allocations=4),
    other("lu_factor_ex", "patched-nomagma", 16, allocations=5, backend="looped_cusolver"),
    other("lu_factor_ex", "patched-nomagma", 64, job="lanes/speed", ms=53.76),
    other("lu_factor_ex", "patched-nomagma", 64, job="lanes/speed", ms=22.6, lanes=4),
]
CHECKS = [
    {"result": "pass", "name": "a", "params": {}, "reason": ""},
    {"result": "fail", "name": "b", "params": {"n": 5, "dtype": "float32"}, "reason": "too slow"},
    {"result": "fail", "name": "b", "params": {"n": 6}, "reason": "", "value": 1.2},
    {"result": "fail", "name": "d", "params": {"n": 7}, "reason": "word " * 40},
    {"result": "vendor", "name": "c", "params": {}, "reason": "dropped NaN"},
    {"result": "vendor", "name": "c", "params": {}, "reason": "dropped NaN"},
]


class Checkout:
    """A checkout with a README, and records if asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records = root / "test/gpu/records"
        self.records.mkdir(parents=True)
        self.readme = root / "README.md"
        self.readme.write_text("Mine.\n<!-- generated: cliff-picture -->\n<!-- end -->\nToo.\n")

    def record(self, scale: float = 1.0, date: str = "2026-11-30", name: str = "h200") -> Path:
        path = self.records / f"patchset-{name}.json"
        data = {"meta": {**META, "date": date}, "points": rows(scale) + OTHERS, "checks": CHECKS}
        path.write_text(json.dumps(data))
        return path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    made = Checkout(tmp_path)
    monkeypatch.setattr(readme, "ROOT", made.root)
    # The parts look the folder up when they are called.
    monkeypatch.setattr(readme, "RECORDS", made.records)
    return made


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["tools/readme", *arguments])
    return readme.main()


def test_writes_what_check_accepts(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.record()
    assert run(monkeypatch, "--check") == 1
    assert run(monkeypatch) == 0
    assert run(monkeypatch, "--check") == 0
    assert_expected_inline(
        checkout.readme.read_text(),
        """\
Mine.
<!-- generated: cliff-picture -->
![The step from n = 511 to 512](test/gpu/records/figures/cliff-h200.png)

- preference "cusolver": largest step from 511 to 512: stock wheel 11.49x (batch 256), with the patches 0.95x (batch 16)

NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-11-30; [record](test/gpu/records/patchset-h200.json), made by `tools/gpu-test patchset`.
<!-- end -->
Too.
""",  # noqa: E501
    )


def test_a_changed_figure_in_the_readme_is_noticed(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.record()
    run(monkeypatch)
    checkout.readme.write_text(checkout.readme.read_text().replace("11.49x", "12.00x"))
    assert run(monkeypatch, "--check") == 1
    said = capsys.readouterr().out
    assert "-- preference" in said and "12.00x" in said and "`tools/readme` writes it anew" in said


def test_a_changed_record_is_noticed(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.record()
    run(monkeypatch)
    checkout.record(scale=1.001)  # too little for the words, but the picture is another
    assert run(monkeypatch, "--check") == 1
    run(monkeypatch)
    assert run(monkeypatch, "--check") == 0


def test_a_lost_picture_is_noticed(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    record = checkout.record()
    run(monkeypatch)
    readme.figure_path(record).unlink()
    assert run(monkeypatch, "--check") == 1


def test_a_newer_record_wins(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.record(date="2026-11-30", name="a")
    run(monkeypatch)
    checkout.record(date="2026-12-01", name="b")
    assert run(monkeypatch, "--check") == 1
    run(monkeypatch)
    assert "figures/cliff-b.png" in checkout.readme.read_text()


def test_without_a_record(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch) == 0
    assert readme.NO_RECORD in checkout.readme.read_text()
    assert not list((checkout.records / "figures").glob("cliff-*"))


def test_hand_written_words_stay(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch)
    text = checkout.readme.read_text()
    assert text.startswith("Mine.\n") and text.endswith("Too.\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- generated: a -->\nx\n", "1 markers open a generated part, 0 close one"),
        ("<!-- end -->", "0 markers open a generated part, 1 close one"),
        ("<!-- generated: a -->\n<!-- generated: b -->\n<!-- end -->", "2 markers open"),
        ("<!-- generated: z -->\n<!-- end -->", "parts that there are not: z. There are: a, b"),
    ],
)
def test_wrong_markers(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        readme.render(text, {"a": lambda: "A", "b": lambda: "B"})
    assert said in str(caught.value)


def test_cliff_table(checkout: Checkout) -> None:
    checkout.record()
    assert_expected_inline(
        readme.cliff_table(),
        """\
|  | batch | stock wheel: n = 511 | n = 512 | ratio | with the patches: n = 511 | n = 512 | ratio |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| preference "cusolver" | 16 | 8.40 | 13.9 | 1.65 | 5.91 | 5.60 | 0.95 |
| preference "cusolver" | 256 | 18.8 | 216 | 11.49 | 18.8 | 17.8 | 0.95 |

`solve_ex`, float32, milliseconds. NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-11-30; [record](test/gpu/records/patchset-h200.json), made by `tools/gpu-test patchset`.""",  # noqa: E501
    )


def test_records(checkout: Checkout) -> None:
    checkout.record()
    assert_expected_inline(
        readme.records(checkout.records),
        """\
| record | GPU | torch | date | timed points | checks |
| --- | --- | --- | --- | --- | --- |
| [patchset](test/gpu/records/patchset-h200.json) | NVIDIA H200 | 2.11.0+cu130 | 2026-11-30 | 15 | 1 pass, 3 fail, 2 vendor |""",  # noqa: E501
    )


def test_failed_checks_are_told(checkout: Checkout) -> None:
    assert readme.failed(checkout.records) == "No check failed."
    checkout.record()
    assert_expected_inline(
        readme.failed(checkout.records),
        """\
- failed in patchset-h200: b
  - 5 float32: too slow
  - 6: 1.2
- failed in patchset-h200: d
  - 7: word word word word word word word word word word word word word word word word word word word word word ...
- a vendor's fault in patchset-h200: c, 2 times""",  # noqa: E501
    )


def test_lanes_and_allocations(checkout: Checkout) -> None:
    checkout.record()
    assert_expected_inline(
        readme.lanes_table().partition("\n\n")[0],
        """\
| `lu_factor_ex`, milliseconds | one stream | 4 streams |
| --- | ---: | ---: |
| 64 matrices of n = 512, float32 | 53.8 | 22.6 |""",
    )
    assert_expected_inline(
        readme.allocations_table().partition("\n\n")[0],
        """\
| allocator calls of one call | at batch | without the patches | with the patches |
| --- | ---: | ---: | ---: |
| `lu_factor_ex` | 1, 16 | 4, 19 | 4, 4 |""",
    )


def test_upstreams_pieces_name_patches_of_the_series() -> None:
    data = readme.upstream_data()
    series = base.load("v2.6.0").series()
    for piece in data["piece"]:
        assert len(piece["states"]) == len(data["releases"]), piece["what"]
        assert "patch" not in piece or piece["patch"] in series


def test_upstreams_table_agrees_with_the_patches_headers() -> None:
    data = readme.upstream_data()
    patches = {patch.name: patch for patch in base.load("v2.6.0").patches()}
    for piece in data["piece"]:
        if "patch" in piece:
            release = patches[piece["patch"]].fields["Applied-Upstream"].partition(", ")[0]
            first = dict(zip(piece["states"][::-1], data["releases"][::-1], strict=True)).get("yes")
            partly = [state.split()[0] for state in piece["states"] if state.endswith(" only")]
            begun = partly[0] if partly else first  # "2.12 only" of the releases 2.6 to 2.12
            assert release == "no" if begun is None else release.startswith(begun), piece["what"]


def test_milliseconds() -> None:
    shown = [readme.milliseconds(value) for value in (0.0327, 1.234, 12.34, 123.4, 858.0)]
    assert shown == ["0.033", "1.23", "12.3", "123", "858"]


# --- the picture ---


def test_picture_has_the_curves_and_says_what_it_shows(tmp_path: Path) -> None:
    cliff = plot.read_cliff(META, rows())
    curves = {(curve.library, curve.n) for curve in cliff.panels["cusolver"]}
    assert curves == {("stock", 511), ("stock", 512), ("patched", 511), ("patched", 512)}
    plot.draw(cliff, tmp_path / "cliff.png", metadata={"Source": "abc"})
    assert readme.stated_digest(tmp_path / "cliff.png") == "abc"
    assert [path.name for path in tmp_path.iterdir()] == ["cliff.png"]


def test_points_of_other_kinds_are_left_out() -> None:
    def changed(**values: object) -> list[dict[str, object]]:
        return [{**row, **values} for row in rows()]

    others = changed(op="inv_ex") + changed(dtype="float64") + changed(n=513, m=513)
    others += changed(library="unpatched-nomagma") + changed(preference="cublas") + changed(m=600)
    assert plot.read_cliff(META, rows() + others) == plot.read_cliff(META, rows())
    with pytest.raises(ValueError, match="no point"):
        plot.draw(plot.read_cliff(META, others), Path("unused.png"))


def test_steps() -> None:
    curves = plot.read_cliff(META, rows()).panels["cusolver"]
    assert plot.steps(curves, "stock") == {16: 13.9 / 8.4, 256: 216.0 / 18.8}
