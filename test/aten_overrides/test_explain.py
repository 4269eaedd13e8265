"""explain(), grid() and their command line, without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import expecttest
import pytest

from aten_overrides import _stock_rule, cli
from aten_overrides._errors import UserError
from aten_overrides._explain import explain, grid
from aten_overrides._select import Basis, Facts, Problem

ROOT = Path(__file__).resolve().parents[2]
# Without our kernels, so that the tests see a choice among libraries.
TABLE = str(ROOT / "aten_overrides/tables/libraries/nvidia-h200.json")


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_OVERRIDES_TABLE", TABLE)


def test_our_kernels_are_chosen_where_they_were_measured_fastest() -> None:
    found = explain("lu_factor", (64, 512, 512), "float32", "h200")
    assert found.chosen == "batched_native" and found.measured
    assert explain("lu_factor", (64, 512, 512), "float32", "h200", native=False).chosen == "stock"
    # One matrix without row exchanges: cuSOLVER is ahead.
    one = explain("lu_factor", (1, 512, 512), "float32", "h200", pivot=False)
    assert one.chosen == one.thresholds.backend == "looped_cusolver"
    # ATen's thresholds know our kernels without a table.
    assert found.thresholds.backend == "batched_native"
    assert explain("lu_factor", (64, 512, 512), "float32").thresholds.regret is None


def test_the_choice_is_the_fastest_measured() -> None:
    found = explain("lu_factor", (64, 512, 512), "float32", native=False)
    assert found.chosen == "stock" and found.ms == pytest.approx(5.7119) and found.measured
    assert found.thresholds.backend == "stock" and found.thresholds.regret == 1.0
    assert found.source.gpu == "NVIDIA H200" and found.source.date == "2026"
    times = {c.backend: c.ms for c in found.candidates}
    assert times["batched_cublas"] == pytest.approx(10.2924)
    assert times["streamed_cusolver"] == pytest.approx(22.5171)


def test_the_cliff_of_stock() -> None:
    """Without MAGMA stock leaves cuBLAS at 512; the thresholds do not."""
    facts = {"prefer": "cusolver", "stock": False}
    below = explain("lu_factor", (64, 511, 511), "float32", **facts)  # type: ignore[arg-type]
    above = explain("lu_factor", (64, 512, 512), "float32", **facts)  # type: ignore[arg-type]
    assert below.stock_rule.backend == "batched_cublas"
    assert above.stock_rule.backend == "looped_cusolver"
    assert above.stock_rule.regret is not None and above.stock_rule.regret > 5
    assert above.thresholds.backend == above.chosen == "batched_cublas"


def test_every_rejected_back_end_has_a_time_or_a_reason() -> None:
    found = explain("lu_factor", (1, 30, 40), "torch.complex64", prefer="cusolver", capturing=True)
    assert found.chosen == "looped_cusolver"
    for candidate in found.candidates:
        assert candidate.ms is not None or candidate.reason
    reasons = {c.backend: c.reason for c in found.candidates if not c.allowed}
    assert "m == n" in reasons["batched_cublas"]
    assert "one matrix" in reasons["streamed_cusolver"]
    assert "synchronizes" in reasons["stock"]


@pytest.mark.parametrize(
    ("prefer", "chosen", "left_out"),
    [
        ("default", "stock", ""),
        ("cusolver", "batched_cublas", "the preference is cusolver"),
        ("cublas", "batched_cublas", "the preference is cublas"),
        ("magma", "stock", ""),
    ],
)
def test_preferences(prefer: str, chosen: str, left_out: str) -> None:
    found = explain("lu_factor", (64, 512, 512), "float32", prefer=prefer)
    assert found.chosen == chosen
    stock = next(c for c in found.candidates if c.backend == "stock")
    assert stock.reason == left_out and stock.ms is not None


def test_fewer_streams_cost_more_but_not_more_than_one() -> None:
    def streamed(lanes: int) -> float:
        found = explain("lu_factor", (16, 1024, 1024), "float32", lanes=lanes)
        ms = next(c.ms for c in found.candidates if c.backend == "streamed_cusolver")
        assert ms is not None
        return ms

    assert streamed(2) > streamed(3) > streamed(4) == streamed(8)
    looped = explain("lu_factor", (16, 1024, 1024), "float32").candidates[1]
    assert looped.ms is not None and streamed(2) <= looped.ms


def test_extrapolation_is_stated() -> None:
    def bases(n: int) -> set[Basis]:
        found = explain("lu_factor", (5, n, n), "float64", native=False)
        return {c.basis for c in found.candidates if c.backend != "batched_native"}

    assert bases(100_000) == {Basis.EXTRAPOLATED}
    assert bases(300) == {Basis.INTERPOLATED}


@pytest.mark.parametrize("shape", [(0, 5, 5), (7, 0, 0), (3, 0, 4), (0, 0)])
def test_empty_problems(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="has no elements: no back end runs"):
        explain("lu_factor", shape, "float32")


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("svd", (2, 2), "float32"), {}, "no operation 'svd'"),
        (("gels", (2, 2), "float32"), {}, "no measured choice for gels yet"),
        (("linalg.slogdet", (2, 2), "float32"), {}, "made of lu_factor"),
        (("lu_factor", (2,), "float32"), {}, r"\(\.\.\., m, n\), found \(2,\)"),
        (("lu_factor", (2, -1), "float32"), {}, "found -1"),
        (("lu_factor", (2, 2.0), "float32"), {}, r"found 2\.0"),
        (("lu_factor", (2**63, 2, 2), "float32"), {}, "between 0 and"),
        (("lu_factor", (2, 2), "int8"), {}, "no dtype 'int8'; known are float32"),
        (("lu_factor", (2, 2), "float32"), {"prefer": "mkl"}, "no preference 'mkl'"),
        (("lu_factor", (2, 2), "float32"), {"lanes": -1}, "lanes must be between 0"),
        (("lu_factor", (2, 2), "float32", "voodoo2"), {}, "tables for nvidia-h200"),
        (("lu_factor", (2, 2), "float32", "no.json"), {}, r"no\.json cannot be read"),
    ],
)
def test_errors(arguments: tuple[object, ...], settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        explain(*arguments, **settings)  # type: ignore[arg-type]


def test_the_table_is_chosen_by_name_path_or_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = json.loads(Path(TABLE).read_text())
    for point in doubled["points"]:
        point["ms"] = {backend: 2 * ms for backend, ms in point["ms"].items()}
    own = tmp_path / "own.json"
    own.write_text(json.dumps(doubled))
    usual = explain("lu_factor", (64, 512, 512), "float32").ms
    ours = explain("lu_factor", (64, 512, 512), "float32", "h200").ms
    assert usual is not None and ours is not None and ours < usual
    given = explain("lu_factor", (64, 512, 512), "float32", str(own))
    assert given.ms == pytest.approx(2 * usual) and given.source.path == str(own)
    monkeypatch.setenv("ATEN_OVERRIDES_TABLE", str(own))
    assert explain("lu_factor", (64, 512, 512), "float32").ms == pytest.approx(2 * usual)
    assert explain("lu_factor", (64, 512, 512), "float32", "h200").ms == ours


@pytest.mark.parametrize(
    ("problem", "preference", "facts", "expected"),
    [
        (Problem(64, 511, 511), "cusolver", Facts(), "batched_cublas"),
        (Problem(64, 512, 512), "cusolver", Facts(), "looped_cusolver"),
        (Problem(1, 8, 8), "cusolver", Facts(), "looped_cusolver"),
        (Problem(64, 8, 9), "cusolver", Facts(), "looped_cusolver"),
        (Problem(16, 128, 128), "default", Facts(), "batched_cublas"),
        (Problem(17, 128, 128), "default", Facts(), "stock"),
        (Problem(1000, 16, 16), "default", Facts(), "batched_cublas"),
        (Problem(64, 512, 512), "default", Facts(stock=False), "looped_cusolver"),
        (Problem(64, 512, 512), "cublas", Facts(), "stock"),
        (Problem(1, 8, 8), "magma", Facts(), "stock"),
    ],
)
def test_stock_rule(problem: Problem, preference: str, facts: Facts, expected: str) -> None:
    assert _stock_rule.lu_factor(problem, preference, facts) == expected


def test_grid() -> None:
    cells = grid("lu_factor", "float32", (2, 64), (511, 512), prefer="cusolver", stock=False)
    assert [(c.batch, c.n, c.before, c.after) for c in cells] == [
        (2, 511, "batched_cublas", "streamed_cusolver"),
        (2, 512, "looped_cusolver", "streamed_cusolver"),
        (64, 511, "batched_cublas", "batched_cublas"),
        (64, 512, "looped_cusolver", "batched_cublas"),
    ]
    assert all(c.after_ms is not None and c.before_ms is not None for c in cells)
    assert all(c.after_ms <= c.before_ms for c in cells if c.after_ms and c.before_ms)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["explain", *arguments]) == 0
    return capsys.readouterr().out.replace(TABLE, "TABLE")


class TestText(expecttest.TestCase):
    @pytest.fixture(autouse=True)
    def _capture(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def test_explanation(self) -> None:
        text = shown(
            self.capsys,
            *("lu_factor", "--shape", "64,512,512", "--prefer", "cusolver", "--capturing"),
        )
        self.assertExpectedInline(
            text,
            """\
lu_factor, float32: 64 matrices of 512 x 512
preference cusolver; 4 streams, MAGMA usable, our kernels built, captured into a CUDA graph
times: NVIDIA H200, measured 2026 with torch 2.11.0+cu130 (TABLE)

chosen: batched_cublas, 10.3 ms
  batched_cublas     10.3 ms (1.00x the best), measured
  streamed_cusolver  22.5 ms (2.19x the best), measured
  looped_cusolver    53.9 ms (5.24x the best), extrapolated
  stock              MAGMA synchronizes and allocates, which a CUDA graph capture forbids
  batched_native     the preference is cusolver

ATen's thresholds: batched_cublas, 10.3 ms (1.00x the best)
stock 2.6 (m >= 512): looped_cusolver, 53.9 ms (5.24x the best)
""",
        )

    def test_rectangular_single(self) -> None:
        text = shown(self.capsys, *("lu_factor", "--shape", "30,40", "--no-stock", "--no-pivot"))
        self.assertExpectedInline(
            text,
            """\
lu_factor, float32: 1 matrix of 30 x 40, without pivoting
preference default; 4 streams, no MAGMA, our kernels built
times: NVIDIA H200, measured 2026 with torch 2.11.0+cu130 (TABLE)

chosen: looped_cusolver, 0.0304 ms
  looped_cusolver    0.0304 ms (1.00x the best), extrapolated
  batched_native     the table has no measurement for such a problem
  batched_cublas     cuBLAS getrfBatched needs m == n
  streamed_cusolver  one matrix cannot be dealt out to several streams
  stock              MAGMA is not in this build or may not be used

ATen's thresholds: looped_cusolver, 0.0304 ms (1.00x the best)
stock 2.6 (m >= 512): looped_cusolver, 0.0304 ms (1.00x the best)
""",
        )

    def test_grid(self) -> None:
        text = shown(
            self.capsys,
            *("lu_factor", "--grid", "--prefer", "cusolver", "--no-stock"),
            *("--batches", "1,2,64", "--sizes", "64,511,512"),
        )
        self.assertExpectedInline(
            text,
            """\
lu_factor, float32, square; stock 2.6 (m >= 512) > ATen's thresholds
  batch             n=64            n=511            n=512
      1    looped>cublas           looped           looped
      2           cublas  cublas>streamed  looped>streamed
     64           cublas           cublas    looped>cublas
""",
        )


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(shown(capsys, "lu_factor", "--shape", "64,512,512", "--json"))
    assert data["chosen"] == "stock" and data["ms"] == pytest.approx(5.7119)
    assert data["problem"] == {"batch": 64, "m": 512, "n": 512, "pivot": True}
    assert {c["backend"]: c["basis"] for c in data["candidates"]}["stock"] == "measured"
    cells = json.loads(shown(capsys, "lu_factor", "--grid", "--json", "--batches", "4"))
    assert {cell["batch"] for cell in cells} == {4} and len(cells) == 13


@pytest.mark.parametrize(
    "arguments",
    [
        ["lu_factor", "--shape", "64,512,512", "--dtype", "float16"],
        ["lu_factor", "--shape", "64,512,512", "--gpu", "voodoo2"],
        ["lu_factor", "--shape", "512"],
        ["lu_factor", "--shape", "4,4", "--sizes", "3"],
    ],
)
def test_errors_are_one_line_and_exit_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("aten-overrides: error: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["no-such-command"], ["explain", "lu_factor"], ["explain", "lu_factor", "--shape", "a,b"]],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: aten-overrides" in capsys.readouterr().err


def test_works_without_torch_and_numpy() -> None:
    """In a process in which neither can be imported, by the command of the README."""
    code = (
        "import sys, runpy\n"
        "for name in ('torch', 'numpy'): sys.modules[name] = None\n"
        "sys.argv = ['aten_overrides', 'explain', 'lu_factor', '--shape', '64,512,512',"
        " '--dtype', 'float32']\n"
        "runpy.run_module('aten_overrides', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "chosen: stock, 5.71 ms" in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "aten_overrides", "explain", "lu_factor", "--grid", "--json"]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_register_themselves() -> None:
    names = [command.name for command in cli.commands()]
    assert "explain" in names and names == sorted(names)
    modules = {path.stem for path in Path(cli.__file__).parent.glob("[!_]*.py")}
    assert len(names) == len(modules)
