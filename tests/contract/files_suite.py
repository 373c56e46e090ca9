"""What every implementation of the tools port promises of `read`, `write` and `edit`."""

import hashlib

import pytest

from tests.helpers.bench_tools import Bench
from threadlog import limits
from threadlog.ports.tools import FileChange, FileSide

BOM = b"\xef\xbb\xbf"


def side(content: bytes) -> FileSide:
    return FileSide(hashlib.sha256(content).hexdigest(), len(content), content)


class FilesSuite:
    """Inherit, and define the fixture `bench`: one implementation with a prepared workspace."""

    async def test_F51_read_gives_line_anchors_and_the_hash(self, bench: Bench) -> None:
        content = b"alpha\n\nbeta\n"
        bench.put("a.txt", content)
        head, *rows = (await bench.text("read a.txt")).splitlines()
        digest = hashlib.sha256(content).hexdigest()
        assert head == f"a.txt: lines 1-3 of 3, hash {digest[:16]}"
        assert [row.partition("|")[2] for row in rows] == ["alpha", "", "beta"]
        assert [row.partition(":")[0] for row in rows] == ["1", "2", "3"]
        anchors = [row.partition(":")[2].partition("|")[0] for row in rows]
        assert len(set(anchors)) == 3
        assert all(len(anchor) == 4 for anchor in anchors)

    async def test_F51_read_shows_a_window_and_says_how_to_read_on(self, bench: Bench) -> None:
        bench.put("a b.txt", b"".join(b"line %d\n" % n for n in range(1, 10_001)))
        seen: list[str] = []
        line = "read 'a b.txt'"
        while line:
            result = await bench.run(line)
            assert len(result.output) < limits.OUTPUT_HEAD_BYTES + limits.OUTPUT_TAIL_BYTES
            *rows, last = result.output.decode().splitlines()[1:]
            line = last.removeprefix("[read on: ").removesuffix("]") if "[read on" in last else ""
            seen += rows if line else [*rows, last]
        assert [row.partition("|")[2] for row in seen] == [f"line {n}" for n in range(1, 10_001)]

    @pytest.mark.parametrize(
        ("window", "span"),
        [("2:3", "2-3"), ("9:99", "9-10"), ("10", "10-10"), ("1:1", "1-1"), ("4", "4-10")],
    )
    async def test_read_takes_a_range(self, bench: Bench, window: str, span: str) -> None:
        bench.put("a.txt", b"".join(b"%d\n" % n for n in range(1, 11)))
        head, *rows = (await bench.text(f"read a.txt {window}")).splitlines()
        assert f"lines {span} of 10" in head
        first, last = map(int, span.split("-"))
        shown = [int(row.partition("|")[2]) for row in rows if not row.startswith("[")]
        assert shown == [*range(first, last + 1)]

    async def test_read_beyond_the_end_and_of_nothing(self, bench: Bench) -> None:
        bench.put("a.txt", b"1\n2\n")
        result = await bench.run("read a.txt 3")
        assert (result.outcome, result.reason) == ("error", "range")
        bench.put("empty", b"")
        assert "no lines" in await bench.text("read empty")

    async def test_read_cuts_a_line_that_is_longer_than_the_window(self, bench: Bench) -> None:
        bench.put("a.txt", "é".encode() * 100_000 + b"\nnext\n")
        found = await bench.text("read a.txt")
        assert "[line cut, 200000 bytes]" in found
        assert "[read on: read a.txt 2]" in found

    async def test_write_makes_a_file_and_its_folders(self, bench: Bench) -> None:
        result = await bench.run("write src/deep/a.py <<'EOF'\nx = '$HOME'\nEOF")
        content = b"x = '$HOME'\n"
        assert (bench.folder / "src/deep/a.py").read_bytes() == content
        assert result.changes == (FileChange("src/deep/a.py", None, side(content)),)
        assert hashlib.sha256(content).hexdigest()[:16] in result.output.decode()

    async def test_write_replaces_a_file_and_keeps_its_mode(self, bench: Bench) -> None:
        path = bench.put("run.sh", b"old\n", mode=0o755)
        before = path.stat()
        result = await bench.run("write ./run.sh 'new'")
        assert result.changes == (FileChange("run.sh", side(b"old\n"), side(b"new")),)
        after = path.stat()
        assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
        assert (await bench.run("write run.sh 'new'")).changes == ()

    async def test_a_path_below_the_workspace_may_be_absolute(self, bench: Bench) -> None:
        root = (await bench.text("pwd")).strip()
        assert (await bench.run(f"write {root}/a.txt x")).changes[0].path == "a.txt"

    async def test_F51_edit_replaces_the_only_place(self, bench: Bench) -> None:
        content = b"def a():\n    return 1\n\n\ndef b():\n    return 2\n"
        path = bench.put("a.py", content)
        result = await bench.run(f"edit a.py --base {await bench.hash_of('a.py')} 'n 2' 'n 3'")
        after = content.replace(b"n 2", b"n 3")
        assert path.read_bytes() == after
        assert result.changes == (FileChange("a.py", side(content), side(after)),)
        assert hashlib.sha256(after).hexdigest()[:16] in result.output.decode()
        assert "return 3" in result.output.decode()

    async def test_F51_edit_refuses_a_file_changed_since_it_was_read(self, bench: Bench) -> None:
        path = bench.put("a.txt", b"one\n")
        base = await bench.hash_of("a.txt")
        await bench.run("echo two > a.txt")
        for line in (f"edit a.txt --base {base} two 2", f"edit a.txt --base {base} 1:1 <<E\n2\nE"):
            result = await bench.run(line)
            assert (result.outcome, result.reason, result.changes) == ("error", "stale", ())
        assert path.read_bytes() == b"two\n"
        full = hashlib.sha256(b"two\n").hexdigest()
        assert (await bench.run(f"edit a.txt --base {full} two 2")).outcome == "ok"

    @pytest.mark.parametrize(
        ("old", "reason"), [("x", "not_unique"), ("aa", "not_unique"), ("z", "no_match")]
    )
    async def test_edit_wants_exactly_one_place(self, bench: Bench, old: str, reason: str) -> None:
        path = bench.put("a.txt", b"x aaa x\n")
        result = await bench.run(f"edit a.txt --base {await bench.hash_of('a.txt')} {old} y")
        assert (result.outcome, result.reason) == ("error", reason)
        assert path.read_bytes() == b"x aaa x\n"

    @pytest.mark.parametrize(
        ("span", "new", "expected"),
        [
            ("2:2", "B\n", b"a\nB\nc\n"),
            ("1:3", "x\ny\n", b"x\ny\n"),
            ("2:2", "", b"a\nc\n"),
            ("1:0", "x\n", b"x\na\nb\nc\n"),
            ("3:2", "x\n", b"a\nb\nx\nc\n"),
            ("4:3", "x\n", b"a\nb\nc\nx\n"),
        ],
    )
    async def test_F51_edit_replaces_and_inserts_lines(
        self, bench: Bench, span: str, new: str, expected: bytes
    ) -> None:
        path = bench.put("a.txt", b"a\nb\nc\n")
        base = await bench.hash_of("a.txt")
        result = await bench.run(f"edit a.txt --base {base} {span} <<'E'\n{new}E")
        assert result.outcome == "ok"
        assert path.read_bytes() == expected

    @pytest.mark.parametrize("span", ["4:4", "5:4", "1:4"])
    async def test_edit_of_lines_that_are_not_there(self, bench: Bench, span: str) -> None:
        path = bench.put("a.txt", b"a\nb\nc\n")
        base = await bench.hash_of("a.txt")
        result = await bench.run(f"edit a.txt --base {base} {span} <<'E'\nx\nE")
        assert (result.outcome, result.reason) == ("error", "range")
        assert path.read_bytes() == b"a\nb\nc\n"

    @pytest.mark.parametrize(
        ("content", "change", "expected"),
        [
            (b"a\r\nb\r\n", "'a\nb' 'x\ny'", b"x\r\ny\r\n"),
            (b"a\r\nb\r\n", "2:2 <<E\nx\ny\nE", b"a\r\nx\r\ny\r\n"),
            (b"a\r\nb\n", "b x", b"a\r\nx\n"),
            (b"a\nb", "b x", b"a\nx"),
            (b"a\nb", "2:2 <<E\nx\nE", b"a\nx"),
            (b"a\nb", "3:2 <<E\nx\nE", b"a\nb\nx"),
            (b"a\nb", "1:1 <<E\nx\nE", b"x\nb"),
            (b"a\nb", "1:0 <<E\nx\nE", b"x\na\nb"),
            (b"a\r\nb", "3:2 <<E\nx\nE", b"a\r\nb\r\nx"),
            (BOM + b"a\nb\n", "1:1 <<E\nx\nE", BOM + b"x\nb\n"),
            (BOM + b"a\r\nb", "a x", BOM + b"x\r\nb"),
            (b"", "1:0 <<E\nx\nE", b"x\n"),
            (b"\n", "1:1 <<E\nx\nE", b"x\n"),
            (b"a\n\xe2\x80\xa8\x0b\n", "a x", b"x\n\xe2\x80\xa8\x0b\n"),
        ],
    )
    async def test_C50_bytes_outside_the_edit_stay(
        self, bench: Bench, content: bytes, change: str, expected: bytes
    ) -> None:
        path = bench.put("a.txt", content)
        base = await bench.hash_of("a.txt")
        result = await bench.run(f"edit a.txt --base {base} {change}")
        assert result.outcome == "ok", result
        assert path.read_bytes() == expected
        assert result.changes == (FileChange("a.txt", side(content), side(expected)),)

    async def test_a_large_side_is_kept_as_hash_and_size(self, bench: Bench) -> None:
        content = b"x" * limits.FILE_KEPT_BYTES_MAX + b"\n"
        bench.put("a.txt", content)
        [change] = (await bench.run("write a.txt small")).changes
        digest = hashlib.sha256(content).hexdigest()
        assert change.before == FileSide(digest, len(content), None)
        assert change.after == side(b"small")

    async def test_nothing_but_the_file_is_left_in_the_folder(self, bench: Bench) -> None:
        await bench.run("write a.txt one")
        await bench.run("write a.txt two")
        assert [path.name for path in bench.folder.iterdir()] == ["a.txt"]
