"""tools/patchset relink on a toy wheel: building, verifying, loading, giving entries back."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toy_wheel

from aotools.env import ROOT, UserError
from aotools.patchset import facts, relink, wheel
from aotools.patchset.relink import ENTRIES, Relinked


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_wheel.make(tmp_path_factory.mktemp("toy") / "site")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of objects for the module: the point is not to compile the same again."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(store))


def build(site: Path, folder: Path, **options: Any) -> Relinked:
    base, source = toy_wheel.toy_base(folder)
    return relink.relink(
        base, source, [], wheel.inspect(site), folder / "out", quiet=True, **options
    )


CALLS = f"""
import ctypes, json, sys
import torch
entries = {ENTRIES!r}
def calls():
    folder = torch.__path__[0] + "/lib/lib"
    cpu, cuda = (ctypes.CDLL(f"{{folder}}{{n}}.so") for n in ("torch_cpu", "torch_cuda"))
    return [getattr(cuda if name == entries[-1] else cpu, f"call_{{name}}")() for name in entries]
"""


def run(site: Path, code: str, *arguments: Path | str) -> Any:
    """Runs Python with the toy torch; returns what it printed as JSON."""
    path = os.pathsep.join([str(ROOT / "tools"), str(site)])
    variables = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", CALLS + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(*ours: str) -> list[int]:
    return [(200 if name in ours else 100) + index for index, name in enumerate(ENTRIES)]


def test_a_plain_load_installs_the_changed_entries_and_no_others(
    site: Path, tmp_path: Path
) -> None:
    made = build(site, tmp_path)
    found = run(site, "ctypes.CDLL(sys.argv[1]); print(json.dumps(calls()))", made.library)
    assert found == expected("cholesky", "lu_factor", "lu_solve")
    assert made.facts["entries"] == ["cholesky", "lu_factor", "lu_solve"]


def test_it_makes_no_difference_that_torch_loaded_its_own_before(
    site: Path, tmp_path: Path
) -> None:
    made = build(site, tmp_path)
    code = (
        'ctypes.CDLL(torch.__path__[0] + "/lib/libtorch_cuda_linalg.so"); before = calls()\n'
        "ctypes.CDLL(sys.argv[1]); print(json.dumps([before, calls()]))"
    )
    before, after = run(site, code, made.library)
    assert before == expected()
    assert after == expected("cholesky", "lu_factor", "lu_solve")


@pytest.mark.parametrize("entries", ["all", "svd,cholesky_solve_helper", ""])
def test_other_choices_of_entries(site: Path, tmp_path: Path, entries: str) -> None:
    made = build(site, tmp_path, entries=entries)
    ours = ENTRIES if entries == "all" else tuple(entries.split(","))
    code = "ctypes.CDLL(sys.argv[1]); print(json.dumps(calls()))"
    assert run(site, code, made.library) == expected(*ours)


LOADER = "from aotools.patchset import loader\nfrom aotools.env import UserError\n"


def test_the_loader_proves_and_restores(site: Path, tmp_path: Path) -> None:
    made = build(site, tmp_path)
    code = (
        LOADER + "lib = loader.load(sys.argv[1]); out = [calls(), lib.table()]\n"
        "lib.restore(); out += [calls(), lib.table()]\n"
        "lib.select(['svd', 'cholesky_solve_helper']); out += [calls(), lib.table()]\n"
        "try:\n    lib.select(['svd', 'lu'])\nexcept UserError as e:\n    out.append(str(e))\n"
        "out.append(calls()); lib.install(); out.append(calls())\n"
        "print(json.dumps(out))"
    )
    found = run(site, code, made.library.parent)
    changed = expected("cholesky", "lu_factor", "lu_solve")
    svd = expected("svd", "cholesky_solve_helper")
    assert (found[0], found[2], found[4]) == (changed, expected(), svd)
    for calls, table in ((found[0], found[1]), (found[2], found[3]), (found[4], found[5])):
        owners = ["ours" if number >= 200 else "wheel" for number in calls]
        assert list(table) == list(ENTRIES)
        assert list(table.values()) == owners
    assert "no linalg entry is called lu." in found[6]
    assert found[7:] == [svd, changed]


def test_the_proof_is_by_file(site: Path, tmp_path: Path) -> None:
    made = build(site, tmp_path)
    code = (
        LOADER + "rows = loader.load(sys.argv[1]).entries()\n"
        "print(json.dumps([[r.name, r.current.file, r.ours.file, r.wheel.file] for r in rows]))"
    )
    for name, current, ours, stock in run(site, code, made.library):
        assert Path(ours) == made.library
        assert Path(stock) == site / "torch/lib/libtorch_cuda_linalg.so"
        assert current == (ours if name in made.facts["entries"] else stock)


def test_two_relinked_libraries_do_not_take_each_other_for_the_wheel(
    site: Path, tmp_path: Path
) -> None:
    first = build(site, tmp_path / "a")
    second = build(site, tmp_path / "b", entries="svd")
    code = (
        LOADER + "a = loader.load(sys.argv[1]); b = loader.load(sys.argv[2]); out = [calls()]\n"
        "b.restore(); out.append(calls()); a.install(); out.append(calls())\n"
        "b.install(); out.append(calls()); print(json.dumps(out + [set(b.table().values()) == "
        "{'ours', 'wheel'}]))"
    )
    found = run(site, code, first.library, second.library)
    changed = expected("cholesky", "lu_factor", "lu_solve")
    assert found == [expected("svd"), expected(), changed, expected("svd"), True]


def test_a_library_carried_elsewhere_loads_with_the_torch_that_is_there(
    site: Path, tmp_path: Path
) -> None:
    made = build(site, tmp_path / "built")
    elsewhere = shutil.copytree(site, tmp_path / "other-machine/site")
    carried = shutil.copytree(made.library.parent, tmp_path / "carried")
    code = LOADER + "loader.load(sys.argv[1]); print(json.dumps(calls()))"
    moved = site.rename(site.with_name("gone"))  # what RUNPATH names is not there
    try:
        found = run(Path(elsewhere), code, carried)
    finally:
        moved.rename(site)
    assert found == expected("cholesky", "lu_factor", "lu_solve")


def test_another_torch_is_refused_by_the_loader(site: Path, tmp_path: Path) -> None:
    made = build(site, tmp_path)
    path = made.library.parent / relink.FACTS
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "torch_git": "another"}))
    code = LOADER + (
        "try:\n    loader.load(sys.argv[1])\nexcept UserError as e:\n    print(json.dumps(str(e)))"
    )
    assert "was built for torch 0.1+cu124 (another), this is" in run(site, code, made.library)
    path.unlink()
    assert "cannot be read" in run(site, code, made.library)
    assert "tools/patchset relink builds it" in run(site, code, tmp_path / "none.so")


def test_a_second_run_builds_nothing(site: Path, tmp_path: Path) -> None:
    first = build(site, tmp_path)
    again = build(site, tmp_path)
    assert (first.built, again.built) == (True, False)
    assert again.facts == first.facts
    first.library.write_bytes(first.library.read_bytes() + b"x")  # tampered with
    third = build(site, tmp_path)
    assert third.built
    assert third.facts["library"]["sha256"] == first.facts["library"]["sha256"]


def test_a_tree_of_the_users_is_no_series(site: Path, tmp_path: Path) -> None:
    made = build(site, tmp_path, tree_only=True)
    assert made.facts["patches"] == []
    path = tmp_path / "source/aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp"
    text = path.read_text()
    base, source = toy_wheel.toy_base(tmp_path)
    path.write_text(text.replace("return 202;", "return 7;"))
    stock, out = wheel.inspect(site), tmp_path / "out"
    other = relink.relink(base, source, [], stock, out, quiet=True, tree_only=True)
    assert other.built
    assert other.facts["sources"] != made.facts["sources"]
    code = "ctypes.CDLL(sys.argv[1]); print(json.dumps(calls()))"
    assert run(site, code, other.library)[2] == 7


def test_a_killed_run_leaves_nothing_for_the_next(site: Path, tmp_path: Path) -> None:
    left = tmp_path / "out/.tmp-killed"
    left.mkdir(parents=True)
    (left / relink.SONAME).write_bytes(b"half")
    build(site, tmp_path)
    assert list((tmp_path / "out").glob(".tmp-*")) == []


def test_a_source_that_does_not_compile_leaves_the_old_library(site: Path, tmp_path: Path) -> None:
    made = build(site, tmp_path)
    before = made.library.read_bytes()
    base, source = toy_wheel.toy_base(tmp_path)
    path = source / "aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp"
    path.write_text(path.read_text() + "int broken = missing_name;\n")
    with pytest.raises(UserError, match=r"BatchLinearAlgebra\.cpp did not compile") as caught:
        relink.relink(base, source, [], wheel.inspect(site), tmp_path / "out", quiet=True)
    assert "missing_name" in str(caught.value)
    assert made.library.read_bytes() == before
    assert json.loads((tmp_path / "out" / relink.FACTS).read_text()) == made.facts


def test_an_undefined_symbol_stops_the_link(site: Path, tmp_path: Path) -> None:
    base, source = toy_wheel.toy_base(tmp_path)
    path = source / "aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp"
    path.write_text(path.read_text() + "int nowhere();\nint used = nowhere();\n")
    with pytest.raises(UserError, match=r"linking failed .*command\.txt") as caught:
        relink.relink(base, source, [], wheel.inspect(site), tmp_path / "out", quiet=True)
    assert "nowhere" in str(caught.value)
    assert not (tmp_path / "out" / relink.SONAME).exists()
    assert "-shared" in (tmp_path / "out/link/command.txt").read_text()


def test_build_facts(site: Path, tmp_path: Path) -> None:
    made = build(site, tmp_path, command="tools/patchset relink --wheel toy")
    record = json.loads((made.library.parent / relink.FACTS).read_text())
    assert record == made.facts
    assert (record["torch"], record["torch_git"]) == ("0.1+cu124", toy_wheel.GIT)
    assert (record["cuda"], record["cxx11_abi"], record["base"]) == ("12.4", True, "v0.1")
    assert record["magma"] == {"mode": "wheel", "lacking": []}
    assert record["command"] == "tools/patchset relink --wheel toy"
    assert record["soname"] == "libtorch_cuda_linalg_patched.so"
    assert "libtorch_cuda_linalg.so" in record["needed"]
    assert record["needs"]["GLIBC"].startswith("2.")
    assert "GNU" in record["compiler"] or "g++" in record["compiler"]


def test_magma_off_and_a_trimmed_magma(tmp_path: Path) -> None:
    lacking = ("magma_spotrf_gpu", "magma_zgesdd")
    trimmed = toy_wheel.make(tmp_path / "site", lacking=lacking)
    made = build(trimmed, tmp_path / "on")
    assert made.facts["magma"] == {"mode": "wheel", "lacking": list(lacking)}
    off = build(trimmed, tmp_path / "off", magma="off")
    assert off.facts["magma"] == {"mode": "off", "lacking": []}
    assert off.facts["headers"] == {"ATen/cuda/CUDAConfig.h": "the wheel's with MAGMA off"}
    config = (tmp_path / "off/out/include/ATen/cuda/CUDAConfig.h").read_text()
    assert "AT_MAGMA_ENABLED() 0" in config


@pytest.mark.parametrize("how", ["without", "lacks what is needed"])
def test_the_wheels_magma_must_be_of_use(tmp_path: Path, how: str) -> None:
    lacking = ("magma_dgetrf_batched",) if how.startswith("lacks") else ()
    site = toy_wheel.make(tmp_path / "site", lacking=lacking, magma=how != "without")
    found = wheel.inspect(site)
    assert relink.choose_magma(None, found) == (False, [])
    with pytest.raises(UserError, match=r"without MAGMA|lacks magma_dgetrf_batched"):
        relink.choose_magma("wheel", found)


def test_another_build_of_the_wheel_is_refused(site: Path, tmp_path: Path) -> None:
    base, source = toy_wheel.toy_base(tmp_path)
    other = dataclasses.replace(wheel.inspect(site), git="another", cxx11_abi=False)
    with pytest.raises(UserError, match="another build than expected") as caught:
        relink.relink(base, source, [], other, tmp_path / "out", quiet=True)
    assert f"git commit: another, base.toml says {toy_wheel.GIT}" in str(caught.value)
    assert "new C++ string ABI: False, base.toml says True" in str(caught.value)


def test_missing_headers_are_named_with_their_packages(site: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(site, tmp_path / "site")
    (bare / "nvidia/cuda/include/nv/target").unlink()
    base, source = toy_wheel.toy_base(tmp_path)
    with pytest.raises(UserError, match=r"nv/target \(nvidia-cuda-cccl\)"):
        relink.relink(base, source, [], wheel.inspect(bare), tmp_path / "out", quiet=True)


def test_no_compiler(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotools.patchset import compile as compiling

    monkeypatch.setenv("CXX", "g++-none")
    compiling.compiler.cache_clear()
    with pytest.raises(UserError, match=r"no C\+\+ compiler"):
        build(site, tmp_path)
    compiling.compiler.cache_clear()


def test_unknown_entries_are_refused(tmp_path: Path) -> None:
    base, _ = toy_wheel.toy_base(tmp_path)
    with pytest.raises(UserError, match=r"no linalg entry is called lu\. There are: cholesky, "):
        relink.parse_entries("lu,svd", base)
    assert relink.parse_entries("svd, lu_factor,", base) == ["lu_factor", "svd"]
    assert relink.parse_entries("all", base) == list(ENTRIES)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"soname": "other.so"}, "its SONAME is 'other.so'"),
        ({"needed": ("libc10.so",)}, "does not name libcublas.so.12"),
        ({"rpath": ("/a",)}, "has a DT_RPATH"),
        ({"runpath": ("/nowhere/lib",)}, "folders that are not there: /nowhere/lib"),
        ({"defined": frozenset({"magma_init"})}, "exports 1 names that could meet the wheel's"),
        ({"defined": frozenset()}, "does not export aten_linalg_patched_install"),
        (
            {"undefined": frozenset({"_ZN3c105ErrorC1ENS_14SourceLocationESs"})},
            "other C++ string ABI",
        ),
        (
            {"undefined": frozenset({"_ZN2at6native16DispatchStubImpl12get_call_ptrEPv"})},
            "other CPU-capability macros",
        ),
    ],
)
def test_verification_finds(
    site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    problem: str,
) -> None:
    made = build(site, tmp_path)
    sound = facts.read(made.library)
    relink.verify(made.library, wheel.inspect(site))
    found = wheel.inspect(site)
    monkeypatch.setattr(facts, "read", lambda path: dataclasses.replace(sound, **change))
    with pytest.raises(UserError) as caught:
        relink.verify(made.library, found)
    assert problem in str(caught.value)


def test_paths_with_commas_and_blanks(site: Path, tmp_path: Path) -> None:
    place = tmp_path / "a, b ü"
    shutil.copytree(site, place / "site", symlinks=True)
    made = build(place / "site", place)
    assert str(place / "site/torch/lib") in facts.read(made.library).runpath
