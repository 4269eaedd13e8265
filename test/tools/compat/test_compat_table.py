"""The README's table of features and releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

from aotools import readme
from aotools.compat import record, table
from aotools.compat.features import FEATURES, IMPOSSIBLE, REFUSED, WORKS, Verdict


def about(cuda: str, date: str) -> dict[str, str]:
    return {"cuda": cuda, "date": date, "compiler": "GNU 12.2.0"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a record of two releases, and one record from a GPU."""
    path = tmp_path / "test/records/compat.json"
    gpu = tmp_path / "test/gpu/records"
    gpu.mkdir(parents=True)
    (gpu / "overrides-x.json").write_text(json.dumps({"meta": {"torch": "2.11.0+cu130"}}))
    (gpu / "lu-native-x.json").write_text(json.dumps({"meta": {"torch": "2.6.0+cu124"}}))
    works = {feature.name: Verdict(WORKS) for feature in FEATURES}
    older = {**works, "native kernels": Verdict(IMPOSSIBLE, None, "no nvcc")}
    older |= {"preference": Verdict(REFUSED, None, "another enum")}
    older |= {"autoload": Verdict(REFUSED, None, "no nvcc")}
    del older["run"]
    works["tell"] = Verdict(WORKS, {"held by torch": ["lu rule", "eigh"]})
    made = record.replace(record.load(path), "2.11.0", about("13.0", "2026-12-02"), works)
    made = record.replace(made, "2.6.0", about("12.4", "2026-12-01"), older)
    record.write(path, made)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "RECORDS", gpu)
    monkeypatch.setattr(readme, "COMPAT", path)
    return tmp_path


def test_table(folder: Path) -> None:
    assert_expected_inline(
        readme.compatibility(),
        """\
|  | 2.6.0, CUDA 12.4 | 2.11.0, CUDA 13.0 |
| --- | --- | --- |
| the gpu library builds | yes | yes |
| LU kernels of our own compile with it, by nvcc from PyPI | not possible (1) | yes |
| `enable()` makes the operations' entries ours, `disable()` the wheel's | yes | yes |
| calls go through the choice and are counted | yes | yes |
| first calls from several threads are safe while enabled | yes | yes |
| `preferred_linalg_library("cublas")` | refused (2) | yes |
| log and `profile()` | yes | yes |
| `info` and `explain` | yes | yes |
| `python -m aten_overrides run` | not tried | yes |
| `ATEN_OVERRIDES=1` enables at `import torch` | refused (1) | yes |
| a library built for another torch is refused before it is loaded | yes | yes |
| pieces that torch holds itself, by `info` | none | lu rule, eigh |
| ran on a GPU | no | yes |

1. no nvcc
2. another enum

Wheels from PyPI on Linux x86-64, GNU 12.2.0, without a GPU, 2026-12-01 to 2026-12-02; [record](test/records/compat.json), made by `tools/compat`.""",  # noqa: E501
    )


def test_a_readme_that_says_something_else_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "<!-- generated: compatibility -->\n<!-- end -->\n"
    (folder / "README.md").write_text(text)
    monkeypatch.setattr("sys.argv", ["tools/readme"])
    assert readme.main() == 0  # the pictures and documents as well
    (folder / "README.md").write_text(text)
    monkeypatch.setattr("sys.argv", ["tools/readme", "--check"])
    assert readme.main() == 1
    (folder / "README.md").write_text(readme.render(text))
    assert readme.main() == 0
    (folder / "README.md").write_text(readme.render(text).replace("refused (2)", "yes"))
    assert readme.main() == 1


def test_without_a_record(folder: Path) -> None:
    readme.COMPAT.unlink()
    assert readme.compatibility() == table.NO_RECORD
