"""Where the local socket lies, and what a person is told when it cannot lie there."""

import stat
import tempfile
from pathlib import Path

import pytest

from threadlog.bootstrap.sockets import listen, socket_path
from threadlog.errors import RefusedError
from threadlog.settings import Settings


def test_the_folder_is_private_and_the_socket_listens(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_dir))
    path = socket_path(Settings(), short_dir / "threadlog.db")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_made_names_tmpdir(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_dir / "file").touch()
    for place in ("none", "file"):
        monkeypatch.setattr(tempfile, "tempdir", str(short_dir / place))
        with pytest.raises(RefusedError, match=r"cannot make.*TMPDIR"):
            socket_path(Settings(), short_dir / "threadlog.db")


def test_a_path_that_no_socket_can_have_names_tmpdir(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = short_dir / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(RefusedError, match=r"too long.*TMPDIR"):
        socket_path(Settings(), short_dir / "threadlog.db")


def test_a_folder_that_others_may_write_is_refused(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_dir))
    folder = socket_path(Settings(), short_dir / "threadlog.db").parent
    folder.chmod(0o777)
    with pytest.raises(RefusedError, match="not a private folder"):
        socket_path(Settings(), short_dir / "threadlog.db")
