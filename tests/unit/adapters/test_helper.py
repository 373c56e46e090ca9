"""The helper in this process: what it answers, and what it does to the files around it."""

import errno
import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from threadlog.adapters.sandbox import helper, helper_files
from threadlog.adapters.sandbox.helper_frames import pack, unpack

BASE = {"root": b"/workspace", "bytes_max": b"1000", "kept_bytes_max": b"8", "window_bytes": b"60"}
FILES = {"a.txt": b"one\ntwo\n", "crlf": b"\xef\xbb\xbfa\r\nb", "latin": b"\xfc", "empty": b""}
HASH = {name: helper_files.sha256(content).encode() for name, content in FILES.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "large").write_bytes(b"line\n" * 200 + b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


def answer(monkeypatch: pytest.MonkeyPatch, **fields: bytes) -> dict[str, bytes]:
    asked, said = io.BytesIO(pack({**BASE, **fields})), io.BytesIO()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=asked))
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=said))
    assert helper.main() == 0
    return unpack(said.getvalue())


def read(path: str, first: int = 1, last: str = "") -> dict[str, bytes]:
    window = {"first": b"%d" % first, "last": last.encode()}
    return {"operation": b"read", "path": path.encode(), **window}


def write(path: str, content: bytes = b"new") -> dict[str, bytes]:
    return {"operation": b"write", "path": path.encode(), "content": content}


def edit(path: str, base: bytes, **change: bytes) -> dict[str, bytes]:
    return {"operation": b"edit", "path": path.encode(), "base": base[:12], **change}


FAILURES = [
    (read("none"), "not_found"),
    (read("a.txt/b"), "not_found"),
    (read("../a.txt"), "outside_workspace"),
    (read("/etc/passwd"), "outside_workspace"),
    (read("folder"), "not_regular"),
    (read("a.txt/"), "not_regular"),
    (read("."), "not_regular"),
    (read("link/a"), "not_regular"),
    (read("fifo"), "not_regular"),
    (read("x" * 300), "name_too_long"),
    (read("x/" * 3_000), "name_too_long"),
    (read("x/" * 70 + "y"), "name_too_long"),
    (read("latin"), "not_text"),
    (read("large"), "too_large"),
    (read("a.txt", 3), "range"),
    (write("link"), "not_regular"),
    (write("link/b"), "not_regular"),
    (edit("a.txt", b"0" * 12, old=b"a", new=b"b"), "stale"),
    (edit("a.txt", HASH["a.txt"], old=b"", new=b"b"), "no_match"),
    (edit("a.txt", HASH["a.txt"], old=b"z", new=b"b"), "no_match"),
    (edit("a.txt", HASH["a.txt"], old=b"o", new=b"b"), "not_unique"),
    (edit("a.txt", HASH["a.txt"], old=b"two", new=b"two"), "no_change"),
    (edit("a.txt", HASH["a.txt"], old=b"two", new=b"x" * 2_000), "too_large"),
    (edit("a.txt", HASH["a.txt"], first=b"4", last=b"3", text=b"x\n"), "range"),
    (edit("latin", HASH["latin"], old=b"a", new=b"b"), "not_text"),
]


@pytest.mark.parametrize(("fields", "reason"), FAILURES)
def test_a_request_that_cannot_be_met_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, bytes], reason: str
) -> None:
    before = {path: path.lstat() for path in folder.iterdir()}
    reply = answer(monkeypatch, **fields)
    assert reply["reason"].decode() == reason
    assert "path" not in reply
    assert {path: path.lstat().st_ino for path in folder.iterdir()} == {
        path: found.st_ino for path, found in before.items()
    }


CHANGES = [
    (write("new", b"text\n"), b"text\n"),
    (write("deep/er/new"), b"new"),
    (write("/workspace/new"), b"new"),
    (write("a.txt", b"x"), b"x"),
    (edit("a.txt", HASH["a.txt"], old=b"two", new=b"2"), b"one\n2\n"),
    (edit("a.txt", HASH["a.txt"], first=b"1", last=b"0", text=b"0\n"), b"0\none\ntwo\n"),
    (edit("a.txt", HASH["a.txt"], first=b"1", last=b"2", text=b""), b""),
    (edit("crlf", HASH["crlf"], first=b"3", last=b"2", text=b"c\n"), b"\xef\xbb\xbfa\r\nb\r\nc"),
    (edit("crlf", HASH["crlf"], old=b"a\nb", new=b"x\n"), b"\xef\xbb\xbfx\r\n"),
    (edit("empty", HASH["empty"], first=b"1", last=b"0", text=b"x\n"), b"x\n"),
]


@pytest.mark.parametrize(("fields", "expected"), CHANGES)
def test_a_change_is_made_and_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, bytes], expected: bytes
) -> None:
    reply = answer(monkeypatch, **fields)
    assert reply["reason"] == b""
    assert (folder / reply["path"].decode()).read_bytes() == expected
    assert reply["after_sha256"].decode() == helper_files.sha256(expected)
    assert reply.get("after_content", b"") == (expected if len(expected) <= 8 else b"")
    assert not [path for path in folder.iterdir() if path.name.startswith(".threadlog")]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        (read("a.txt"), ["a.txt: lines 1-2 of 2, hash ", "|one", "|two"]),
        (read("a.txt", 1, "1"), ["lines 1-1 of 2", "|one", "[read on: read a.txt 2]"]),
        (read("empty"), ["empty: no lines, hash "]),
        (read("crlf"), ["(CRLF, byte order mark, no final newline)", "|a", "|b"]),
        (write("a.txt", FILES["a.txt"]), ["a.txt is so already: "]),
    ],
)
def test_what_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, bytes], shown: list[str]
) -> None:
    reply = answer(monkeypatch, **fields)
    rows = reply["text"].decode().splitlines()
    assert (reply["reason"], len(rows)) == (b"", len(shown))
    assert all(part in row for part, row in zip(shown, rows, strict=True))


def test_a_window_is_filled_and_read_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a b").write_bytes(b"".join(b"%d\n" % n for n in range(20)) + b"y" * 90)
    shown, line = [], 1
    while line:
        rows = answer(monkeypatch, **read("a b", line, "21"))["text"].decode().splitlines()[1:]
        line = 0
        if rows[-1].startswith("[read on: read 'a b' "):
            line = int(rows.pop().split()[5].partition(":")[0])
        shown += [row.partition("|")[2] for row in rows]
    assert shown[:20] == [str(n) for n in range(20)]
    assert shown[20].endswith("y [line cut, 90 bytes]")


def test_a_file_that_changes_while_it_is_replaced_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (folder / "a.txt").write_text("meanwhile"))
    assert answer(monkeypatch, **write("a.txt"))["reason"] == b"stale"
    assert (folder / "a.txt").read_text() == "meanwhile"


def test_a_full_disk_is_told_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert answer(monkeypatch, **write("a.txt"))["reason"] == b"no_space"
    assert (folder / "a.txt").read_bytes() == FILES["a.txt"]
    assert not [path for path in folder.iterdir() if path.name.startswith(".threadlog")]


def test_half_a_request_does_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = io.BytesIO(pack({**BASE, **write("a.txt")})[:-1])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=asked))
    with pytest.raises(ValueError, match="frames"):
        helper.main()
    assert (folder / "a.txt").read_bytes() == FILES["a.txt"]
