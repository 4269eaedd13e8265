"""tools/patchset fetch: the four sources, verification, and what is left after a failure."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import multiprocessing
import os
import random
import shutil
import socket
import tarfile
from pathlib import Path

import fake_base
import pytest
from fake_base import FakeBase

from aotools.env import UserError
from aotools.patchset import apt, fetch
from aotools.patchset.base import LINALG, AptSource, blob_id


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_a_folder_is_copied_and_left_alone(fake: FakeBase, cache: Path) -> None:
    extra = fake.source / "unrelated.txt"
    extra.write_text("not needed")
    before = files(fake.source)
    tree = fetch.source(fake.load(), "dir", fake.source)
    assert tree.is_relative_to(cache)
    assert set(files(tree)) == set(fake.load().blobs)
    assert files(fake.source) == before
    assert fetch.source(fake.load()) == tree  # from now on without naming one


def test_a_tarball_is_verified_before_it_is_unpacked(fake: FakeBase, cache: Path) -> None:
    tarball = fake_base.make_tarball(fake.source, cache.parent / "source.tar.xz")
    with pytest.raises(UserError, match=r"no checksum .* --sha256"):
        fetch.source(fake.load(), "tarball", tarball)
    with pytest.raises(UserError, match=rf"its sha256 is {sha256(tarball)}, pinned is 0000"):
        fetch.source(fake.load(), "tarball", tarball, sha256="0" * 64)
    assert files(cache) == {}
    tree = fetch.source(fake.load(), "tarball", tarball, sha256=sha256(tarball), progress=False)
    assert set(files(tree)) == set(fake.load().blobs)


def test_broken_and_incomplete_tarballs_are_refused(fake: FakeBase, cache: Path) -> None:
    tarball = fake_base.make_tarball(fake.source, cache.parent / "source.tar.xz")
    cut = cache.parent / "cut.tar.xz"
    cut.write_bytes(tarball.read_bytes()[:-200])
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch.source(fake.load(), "tarball", cut, sha256=sha256(cut))
    (fake.source / LINALG / "Solver.h").unlink()
    less = fake_base.make_tarball(fake.source, cache.parent / "less.tar.xz")
    with pytest.raises(UserError, match="lacks 1 files that are needed"):
        fetch.source(fake.load(), "tarball", less, sha256=sha256(less))
    with pytest.raises(UserError, match="is not a file"):
        fetch.source(fake.load(), "tarball", cache.parent / "none.tar.xz")
    assert not fetch.ready(fake.load())


def test_git_clones_the_tag_and_not_the_branch(
    fake: FakeBase, cache: Path, hostile_git: Path
) -> None:
    origin = fake_base.make_origin(fake.source, cache.parent / "origin")
    tree = fetch.source(fake.load(), "git", url=origin.as_uri(), progress=False)
    assert files(tree) == files(fake.source)
    assert not hostile_git.exists()


def test_an_unknown_tag_or_address_is_named(fake: FakeBase, cache: Path) -> None:
    origin = fake_base.make_origin(fake.source, cache.parent / "origin")
    fake.edit("base.toml", 'tag = "v0.1"', 'tag = "v0.2"')
    with pytest.raises(UserError, match=r"cannot get v0\.2 from file://"):
        fetch.source(fake.load(), "git", url=origin.as_uri())
    with pytest.raises(UserError, match="cannot get"):
        fetch.source(fake.load(), "git", url=(cache.parent / "nowhere").as_uri())


def test_another_release_is_refused(fake: FakeBase, cache: Path) -> None:
    path = fake.source / LINALG / "Solver.cpp"
    path.write_text(path.read_text().replace("line7 = 7", "line7 = 8"))
    with pytest.raises(UserError, match=r"not PyTorch v0\.1: 1 of 3 files differ.*") as caught:
        fetch.source(fake.load(), "dir", fake.source)
    assert "Solver.cpp: is " in str(caught.value)
    assert not fetch.tree_path(fake.load()).exists()
    with pytest.raises(UserError, match="is not a PyTorch source tree"):
        fetch.source(fake.load(), "dir", cache.parent)


def test_bad_requests_are_refused(fake: FakeBase, cache: Path) -> None:
    with pytest.raises(UserError, match=r"no source 'ftp'. There are: apt, git, tarball, dir"):
        fetch.source(fake.load(), "ftp")
    with pytest.raises(UserError, match="--source dir needs a folder"):
        fetch.source(fake.load(), "dir")


def test_without_a_network_every_reason_is_told(fake: FakeBase, cache: Path) -> None:
    with pytest.raises(UserError) as caught:
        fetch.source(fake.load())
    text = str(caught.value)
    assert "apt: " in text and "names no Debian package" in text
    assert "git: git cannot get v0.1 from file:///nowhere/pytorch" in text
    assert "--source dir FOLDER" in text


def closed_port() -> int:
    """A port of this machine at which nothing answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt-get: not a Debian machine")
def test_apt_without_a_network_fails_with_apts_words(cache: Path) -> None:
    wanted = AptSource("pytorch", "2.6.0+dfsg-7", "trixie", "pytorch.tar.xz")
    kept = cache / "download/pytorch.tar.xz"
    if not apt.KEYRING.is_file():
        pytest.skip("no Debian keyring on this machine")
    with pytest.raises(UserError, match=r"apt-get update failed: .*127.0.0.1"):
        apt.source_tarball(
            wanted,
            kept,
            "0" * 64,
            cache / "apt",
            progress=False,
            uri=f"http://127.0.0.1:{closed_port()}/debian",
        )
    assert not kept.exists()
    assert [path.name for path in kept.parent.iterdir()] == []


def test_the_archive_is_the_machines_own(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "other.list").write_text("deb [arch=amd64] https://apt.example.org/tool stable main\n")
    with pytest.raises(UserError, match="no Debian archive is configured"):
        apt.archive_uri(tmp_path)
    (parts / "debian.sources").write_text(
        "Types: deb\nURIs: http://mirror.example.org/debian/\nSuites: bookworm\n"
    )
    assert apt.archive_uri(tmp_path) == "http://mirror.example.org/debian"
    (tmp_path / "sources.list").write_text("deb http://old.example.org/debian bookworm main\n")
    assert apt.archive_uri(tmp_path) == "http://old.example.org/debian"


def test_a_full_disk_leaves_nothing(
    fake: FakeBase, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def full(source: Path, to: Path) -> None:
        written.append(to)
        to.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(UserError, match=r"No space left on device.*ATEN_OVERRIDES_CACHE"):
        fetch.source(fake.load(), "dir", fake.source)
    assert written
    assert files(cache) == {}


def test_too_little_room_is_told_at_once(
    fake: FakeBase, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_NEED_BYTES", 1e18)
    with pytest.raises(UserError, match=r"the disk is too full for the source of v0.1"):
        fetch.source(fake.load(), "dir", fake.source)


def test_a_killed_run_is_cleaned_up_and_a_damaged_cache_replaced(
    fake: FakeBase, cache: Path
) -> None:
    base = fake.load()
    left = fetch.folder(base) / ".tmp-killed"
    (left / "tree").mkdir(parents=True)
    tree = fetch.source(base, "dir", fake.source)
    assert not left.exists()
    (tree / LINALG / "Solver.h").write_text("damaged\n")
    found, wanted = blob_id(b"damaged\n"), base.blobs[f"{LINALG}/Solver.h"]
    wrong = [f"{LINALG}/Solver.h: is {found}, not {wanted}"]
    assert fetch.wrong_files(tree, base.blobs) == wrong
    assert fetch.ready(base) is False
    assert fetch.source(base, "dir", fake.source) == tree
    assert fetch.ready(base)


def test_a_longer_list_of_files_is_another_tree(fake: FakeBase, cache: Path) -> None:
    short = fetch.source(fake.load(), "dir", fake.source)
    (fake.source / "new.txt").write_text("new\n")
    blob = blob_id(b"new\n")
    with (fake.folder / "base.toml").open("a") as handle:
        handle.write(f'"new.txt" = "{blob}"\n')
    longer = fetch.source(fake.load(), "dir", fake.source)
    assert longer != short
    assert short.is_dir()


def _fetch(root: Path, source: Path) -> None:
    fetch.source(FakeBase(root, source, root).load(), "dir", source)


def test_runs_at_the_same_time_end_well(fake: FakeBase, cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fetch, args=(fake.root, fake.source)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert files(fetch.tree_path(fake.load())) == files(fake.source)


def test_the_blobs_of_a_tree_are_listed_anew(fake: FakeBase, cache: Path) -> None:
    assert fetch.current_blobs(fake.load(), ["docs/notes.rst"], fake.source) == fake.load().blobs
    with pytest.raises(UserError, match=r"absent\.txt cannot be read"):
        fetch.current_blobs(fake.load(), ["absent.txt"], fake.source)


@pytest.mark.parametrize("kind", ["xz", "bz2"])
def test_damaged_tarballs_are_refused(fake: FakeBase, cache: Path, kind: str) -> None:
    noise = random.Random(1).randbytes(50_000).hex()  # so that the damage is not at an end
    (fake.source / "zz").write_text(noise)
    tarball = cache.parent / f"source.tar.{kind}"
    with tarfile.open(tarball, f"w:{kind}") as archive:  # type: ignore[call-overload]
        for path in (fake.source / "zz", *sorted(fake.source.iterdir())):
            archive.add(path, arcname=f"pytorch-0.1/{path.name}")
    data = bytearray(tarball.read_bytes())
    data[20_000:20_064] = b"\xff" * 64
    tarball.write_bytes(data)
    with pytest.raises(UserError, match=rf"source\.tar\.{kind} cannot be unpacked: .+"):
        fetch.source(fake.load(), "tarball", tarball, sha256=sha256(tarball), progress=False)


def test_a_damaged_download_is_fetched_again(
    fake: FakeBase, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = fake_base.make_tarball(fake.source, cache.parent / "good.tar.xz")
    debian = AptSource("pytorch", "0.1", "trixie", "source.tar.xz")
    base = dataclasses.replace(fake.load(), apt=debian, tarball_sha256=sha256(good))
    kept = fetch.downloaded(base)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(good.read_bytes()[:100])

    def download(wanted: AptSource, to: Path, *_: object, **__: object) -> None:
        assert wanted == debian
        shutil.copyfile(good, to)

    monkeypatch.setattr(apt, "source_tarball", download)
    assert set(files(fetch.source(base, progress=False))) == set(base.blobs)
    assert sha256(kept) == sha256(good)
