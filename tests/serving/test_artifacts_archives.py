"""Hostile and broken tars are refused before anything is unpacked, one by one."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.artifacts import inspect_archive, unpack_model
from serving.errors import ArtifactError
from tests.support.archives import member, pack, packed_model, tar_of

Member = tuple[tarfile.TarInfo, bytes]
DIR, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
MLMODEL: Member = (member("./MLmodel"), b"flavors: {}\n")


def silent(_: str) -> None:
    """Progress that nobody wants."""


def refusal(tar: Path, target: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        unpack_model(tar, target, silent)
    assert not target.exists()
    assert [p.name for p in target.parent.glob("*") if p.name != ".locks"] == []
    return caught.value.reason_code


@pytest.mark.parametrize(
    "hostile",
    [
        [(member("/etc/shoal-evil"), b"x")],
        [(member("../evil"), b"x")],
        [(member("./a/../../evil"), b"x")],
        [(member("./link", LINK, "/etc"), b"")],
        [(member("./link", LINK, "../outside"), b"")],
        [(member("./a", DIR), b""), (member("./a/link", LINK, "../../outside"), b"")],
        [(member("./link", LINK, "a/../../outside"), b"")],
        [(member("./s", LINK, "."), b""), (member("./t", LINK, "s/s/../../outside"), b"")],
        [(member("./in", LINK, "a"), b""), (member("./in/file"), b"x")],
        [(member("./hard", HARD, "/etc/passwd"), b"")],
        [(member("./hard", HARD, "./not-here"), b"")],
        [(member("./device", tarfile.CHRTYPE), b"")],
        [(member("./disk", tarfile.BLKTYPE), b"")],
        [(member("./pipe", tarfile.FIFOTYPE), b"")],
        [(member("./a"), b"x"), (member("./a", LINK, "b"), b"")],
        [(member("./a", DIR), b""), (member("./a", LINK, "b"), b"")],
    ],
    ids=lambda members: "+".join(f"{m.name}>{m.linkname}" for m, _ in members),
)
def test_a_tar_that_would_leave_its_folder_is_unsafe(hostile: list[Member], tmp_path: Path) -> None:
    tar = tar_of(tmp_path / "hostile.tar", MLMODEL, *hostile)

    assert refusal(tar, tmp_path / "models" / "1") == "UNSAFE_TAR"


def test_links_that_stay_inside_are_kept(tmp_path: Path) -> None:
    tar = tar_of(
        tmp_path / "links.tar",
        MLMODEL,
        (member("./data"), b"content"),
        (member("./a", DIR), b""),
        (member("./a/link", LINK, "../data"), b""),
        (member("./hard", HARD, "./data"), b""),
    )

    unpack_model(tar, tmp_path / "models" / "1", silent)

    assert (tmp_path / "models" / "1" / "a" / "link").read_bytes() == b"content"
    assert (tmp_path / "models" / "1" / "hard").read_bytes() == b"content"


def test_a_set_user_id_bit_is_not_kept(tmp_path: Path) -> None:
    info = member("./tool")
    info.mode = 0o4755
    tar = tar_of(tmp_path / "setuid.tar", MLMODEL, (info, b"#!/bin/sh\n"))

    unpack_model(tar, tmp_path / "models" / "1", silent)

    assert (tmp_path / "models" / "1" / "tool").stat().st_mode & 0o7777 == 0o755


def _cut_in_a_member(content: bytes) -> bytes:
    return content[: len(content) // 2 - 100]


def _without_an_end(content: bytes) -> bytes:
    return content.rstrip(b"\0") + b"\0" * (-len(content.rstrip(b"\0")) % 512)


@pytest.mark.parametrize(
    "breaks", [_cut_in_a_member, _without_an_end, gzip.compress, lambda _: b"", lambda _: b"no tar"]
)
def test_a_tar_that_is_cut_off_or_none_is_incomplete(
    breaks: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    tar = packed_model(tmp_path / "source")
    tar.write_bytes(breaks(tar.read_bytes()))

    assert refusal(tar, tmp_path / "models" / "1") == "INCOMPLETE"


def test_a_missing_tar_is_incomplete(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.tar", tmp_path / "models" / "1") == "INCOMPLETE"


def test_a_model_without_mlmodel_is_incomplete(tmp_path: Path) -> None:
    tar = tar_of(tmp_path / "empty.tar", (member("./weights"), b"x"))

    assert refusal(tar, tmp_path / "models" / "1") == "INCOMPLETE"


def test_members_hidden_behind_garbage_are_unsafe(tmp_path: Path) -> None:
    first = tar_of(tmp_path / "first.tar", MLMODEL).read_bytes().rstrip(b"\0")
    first += b"\0" * (-len(first) % 512)
    second = tar_of(tmp_path / "second.tar", (member("./hidden"), b"x")).read_bytes()
    tar = tmp_path / "both.tar"
    tar.write_bytes(first + b"garbage!" * 64 + second)

    assert refusal(tar, tmp_path / "models" / "1") == "UNSAFE_TAR"


def test_members_behind_the_end_are_unsafe(tmp_path: Path) -> None:
    first = tar_of(tmp_path / "first.tar", MLMODEL).read_bytes()
    second = tar_of(tmp_path / "second.tar", (member("./hidden"), b"x")).read_bytes()
    tar = tmp_path / "both.tar"
    tar.write_bytes(first + second)

    assert refusal(tar, tmp_path / "models" / "1") == "UNSAFE_TAR"


def test_a_giant_header_is_refused_and_not_read(tmp_path: Path) -> None:
    tar = tmp_path / "giant.tar"
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 8 * 2**30
    with tar.open("wb") as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        out.truncate(8 * 2**30 + 4096)

    assert refusal(tar, tmp_path / "models" / "1") == "UNSAFE_TAR"


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    holed = tmp_path / "source" / "holed"
    holed.parent.mkdir()
    with holed.open("wb") as out:
        out.truncate(2**30)
    tar = tmp_path / "sparse.tar"
    assert os.system(f"tar --sparse -cf {tar} -C {holed.parent} .") == 0

    assert refusal(tar, tmp_path / "models" / "1") in {"UNSAFE_TAR", "INCOMPLETE"}


@pytest.mark.parametrize(
    "name",
    ["x" * 256, "ä" * 128, "/".join("d" * 200 for _ in range(11)), "a/" * 101 + "b"],
    ids=["long", "long in UTF-8", "long path", "deep"],
)
def test_a_name_that_no_disk_takes_is_unsafe(name: str, tmp_path: Path) -> None:
    tar = tar_of(tmp_path / "names.tar", MLMODEL, (member(f"./{name}"), b"x"))

    assert refusal(tar, tmp_path / "models" / "1") == "UNSAFE_TAR"


def test_too_many_members_are_unsafe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.artifacts.archives.MAX_MEMBERS", 100)
    many = [(member(f"./{n}"), b"") for n in range(100)]

    assert refusal(tar_of(tmp_path / "many.tar", MLMODEL, *many), tmp_path / "models" / "1") == (
        "UNSAFE_TAR"
    )


def _header(kind: bytes, size: int, name: str = "././@LongLink") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "headers",
    [
        # Each of these is read within the one before it, as deep as Python goes.
        (_header(tarfile.GNUTYPE_LONGNAME, 2) + b"x".ljust(512, b"\0")) * 5000,
        (_header(tarfile.XHDTYPE, 11) + b"11 a=bcdef\n".ljust(512, b"\0")) * 5000,
        _header(tarfile.GNUTYPE_LONGNAME, -512),
        _header(tarfile.XHDTYPE, -1024),
        _header(tarfile.REGTYPE, -512, "./backwards"),
        _header(tarfile.REGTYPE, 2**70, "./endless"),
        _header(tarfile.XHDTYPE, 11) + b"11 size=-9\n".ljust(512, b"\0") + _header(b"0", 1, "./a"),
    ],
    ids=["long names", "pax", "negative name", "negative pax", "negative", "endless", "pax size"],
)
def test_headers_that_lead_nowhere_are_refused_quickly(headers: bytes, tmp_path: Path) -> None:
    tar = tmp_path / "headers.tar"
    whole = tar_of(tmp_path / "whole.tar", MLMODEL).read_bytes()
    tar.write_bytes(whole[:1024] + headers + whole[1024:])
    begin = time.monotonic()

    assert refusal(tar, tmp_path / "models" / "1") in {"UNSAFE_TAR", "INCOMPLETE"}
    assert time.monotonic() - begin < 30


def test_global_headers_do_not_pile_up(tmp_path: Path) -> None:
    tar = tmp_path / "global.tar"
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as out:
        out.addfile(*_with_content(*MLMODEL))
    whole = tar.read_bytes()
    piled = b""
    for number in range(200):
        record = f"20 key{number:04d}={'v' * 7}\n".encode()
        piled += _header(tarfile.XGLTYPE, len(record), "g") + record.ljust(512, b"\0")
        piled += _header(tarfile.DIRTYPE, 0, f"./{number}")
    tar.write_bytes(whole[:1024] + piled + whole[1024:])

    assert refusal(tar, tmp_path / "models" / "1") == "UNSAFE_TAR"


def _with_content(info: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info.size = len(content)
    return info, io.BytesIO(content)


def test_many_small_files_need_a_block_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [(member(f"./{n}"), b"x") for n in range(1000)]
    tar = tar_of(tmp_path / "small.tar", MLMODEL, *small)
    archive = inspect_archive(tar, silent)

    assert (archive.size_bytes, archive.entries) == (1000 + len(MLMODEL[1]), 1001)
    assert archive.disk_bytes == 1001 * 4096

    free = os.statvfs(tmp_path).f_favail
    if free:  # some file systems do not count their files
        monkeypatch.setattr("serving.artifacts.files.SPARE_ENTRIES", free)
        assert refusal(tar, tmp_path / "models" / "1") == "NO_SPACE"


def test_hard_links_take_no_space_twice(tmp_path: Path) -> None:
    links = [(member(f"./{n}", HARD, "./data"), b"") for n in range(100)]
    tar = tar_of(tmp_path / "hard.tar", MLMODEL, (member("./data"), b"x" * 10**6), *links)

    unpack_model(tar, tmp_path / "models" / "1", silent)

    assert (tmp_path / "models" / "1" / "data").stat().st_nlink == 101


def test_the_hash_knows_names_modes_and_contents_and_not_times(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    file = folder / "file"
    file.write_text("one")

    def content_hash() -> str:
        return inspect_archive(pack(folder, tmp_path / "a.tar"), silent).content_hash

    first = content_hash()
    os.utime(file, (1, 1))
    assert content_hash() == first
    file.chmod(0o755)
    executable = content_hash()
    file.write_text("two")
    changed = content_hash()
    file.rename(folder / "other")
    renamed = content_hash()
    assert len({first, executable, changed, renamed}) == 4


def test_the_second_copy_of_lib_does_not_count(tmp_path: Path) -> None:
    lib = tmp_path / "source" / "lib" / "python3.11"
    lib.mkdir(parents=True)
    (lib / "module.py").write_text("x = 1\n")
    plain = inspect_archive(pack(tmp_path / "source", tmp_path / "plain.tar"), silent)
    (tmp_path / "source" / "lib64").symlink_to("lib")
    doubled = inspect_archive(pack(tmp_path / "source", tmp_path / "doubled.tar"), silent)

    assert doubled.has_lib64_copy
    assert (doubled.content_hash, doubled.size_bytes) == (plain.content_hash, plain.size_bytes)
