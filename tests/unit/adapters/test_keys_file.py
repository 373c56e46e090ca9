"""Keys in a file: what is valid follows the file, and while it cannot be trusted nothing is."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT
from threadlog.adapters.keys import file as module
from threadlog.adapters.keys.disk import Identity, read_private
from threadlog.adapters.keys.file import KeysFile
from threadlog.api.keys import DEFAULT_SCOPES, Credential, format_key, parse_key
from threadlog.clock import ManualClock
from threadlog.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    RefusedError,
    ThreadlogError,
    UsageError,
)
from threadlog.ids import TenantId
from threadlog.limits import KEYS_LOOK_MS
from threadlog.ports.keys import Keys

ACME = TenantId("acme")
HOUR_MS = 3_600_000


class World:
    """A keys file, the gateway that asks it, and the command that changes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.gateway = KeysFile(path, self.clock)
        self.command = KeysFile(path, self.clock)

    def create(self, name: str = "ci", expires_at_ms: int | None = None) -> str:
        return self.command.create(ACME, name, DEFAULT_SCOPES, expires_at_ms)[1]

    def ask(self, key: str) -> Credential | None:
        """What the gateway says once it has looked again."""
        self.clock.advance(KEYS_LOOK_MS)
        port: Keys = self.gateway
        return port.verify(key)


def id_of(key: str) -> str:
    parsed = parse_key(key)
    assert parsed is not None
    return parsed[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data" / "keys.json")


def test_F94_a_key_gives_its_tenant_and_scopes(world: World) -> None:
    key = world.create()
    credential = world.ask(key)
    assert credential is not None
    assert (credential.tenant, credential.actor) == (ACME, f"key:{id_of(key)}")
    assert credential.scopes == set(DEFAULT_SCOPES)
    assert world.gateway.is_valid(credential)


def test_F94_every_fault_is_alike(world: World) -> None:
    key = world.create()
    key_id, secret = parse_key(key) or ("", "")
    other = secret.translate(str.maketrans("0123456789abcdef", "fedcba9876543210"))
    for wrong in (
        "",
        "\udcff",
        key[:-1],
        key.upper(),
        format_key(key_id, other),
        format_key(key_id, "0" * 64),
        format_key("a" * 12, secret),
    ):
        assert world.ask(wrong) is None
    assert world.ask(key) is not None


def test_F94_only_a_hash_is_kept_and_nothing_shows_the_secret(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = world.create()
    _, secret = parse_key(key) or ("", "")
    shown = [world.path.read_text(), repr(world.ask(key)), repr(world.command.records())]
    assert not [text for text in [*shown, caplog.text] if secret in text]
    assert world.path.stat().st_mode & 0o777 == 0o600
    assert world.path.parent.stat().st_mode & 0o777 == 0o700
    assert (world.path.parent / "keys.json.lock").stat().st_mode & 0o777 == 0o600


def test_F94_a_revoked_key_is_refused_within_a_second(world: World) -> None:
    key, other = world.create(), world.create()
    credential = world.ask(key)
    assert credential is not None
    world.clock.advance(5)
    revoked = world.command.revoke(id_of(key))
    assert revoked.revoked_at_ms == world.clock.now_ms()
    assert world.ask(key) is None
    assert not world.gateway.is_valid(credential)
    assert world.ask(other) is not None
    world.clock.advance(HOUR_MS)
    assert world.command.revoke(id_of(key)) == revoked


def test_F94_a_key_ends_at_its_time(world: World) -> None:
    key = world.create(expires_at_ms=world.clock.now_ms() + HOUR_MS)
    credential = world.ask(key)
    assert credential is not None
    world.clock.advance(HOUR_MS - KEYS_LOOK_MS - 1)
    assert world.gateway.is_valid(credential)
    world.clock.advance(1)
    assert not world.gateway.is_valid(credential)
    assert world.gateway.verify(key) is None


def test_a_credential_ends_when_its_key_gives_another(world: World) -> None:
    key = world.create()
    credential = world.ask(key)
    assert credential is not None
    text = world.path.read_text()
    world.path.write_text(text.replace(',"content:read"', ""))
    narrowed = world.ask(key)
    assert narrowed is not None
    assert narrowed.scopes == {"threads:read", "threads:write"}
    assert not world.gateway.is_valid(credential)
    assert world.gateway.is_valid(narrowed)


def test_F94_two_keys_rotate_and_a_third_waits(world: World) -> None:
    first, second = world.create(), world.create()
    with pytest.raises(ConflictError, match=f"keys revoke {id_of(first)}") as caught:
        world.create()
    assert id_of(second) in str(caught.value)
    world.create("other")
    world.command.create(TenantId("umbrella"), "ci", DEFAULT_SCOPES, None)
    world.command.revoke(id_of(first))
    world.create()
    assert [record.name for record in world.command.records()] == ["ci", "ci", "other", "ci", "ci"]


def test_a_key_that_has_ended_makes_room_for_the_next(world: World) -> None:
    world.create(expires_at_ms=world.clock.now_ms() + HOUR_MS)
    world.create()
    world.clock.advance(HOUR_MS)
    world.create()


def test_a_full_file_forgets_the_oldest_key_that_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadlog.adapters.keys.edits.KEYS_MAX", 3)
    keys = [world.create(name) for name in ("a", "b", "c")]
    with pytest.raises(RefusedError, match="revoke some"):
        world.create("d")
    world.command.revoke(id_of(keys[1]))
    world.create("d")
    assert [record.name for record in world.command.records()] == ["a", "c", "d"]


def test_an_unchanged_file_is_looked_at_and_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def counted(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
        reads.append(path)
        return read_private(path, bytes_max)

    key = world.create()
    monkeypatch.setattr(module, "read_private", counted)
    for _ in range(100):
        assert world.gateway.verify(key) is not None
    assert len(reads) == 1
    for _ in range(10):
        assert world.ask(key) is not None
    # Once more a second later, since a write in the same moment shows in no number of the file.
    assert len(reads) == 2


def test_an_edit_that_shows_in_no_number_of_the_file_counts_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of files stands still for milliseconds: two writes may look alike."""
    same = Identity(1, 1, 1, 1, 1)
    monkeypatch.setattr(Identity, "of", lambda _: same)
    key = world.create()
    assert world.ask(key) is not None
    world.path.write_text(world.path.read_text().replace('"acme"', '"acmf"'))
    found = world.ask(key)
    assert found is not None
    assert found.tenant == "acmf"


BROKEN = {
    "empty": "",
    "torn": '{"version":1,"signing_key":"',
    "other": "[]",
    "newer": '{"version":2,"signing_key":"%s","keys":[]}' % ("a" * 64),
    "more": '{"version":1,"signing_key":"%s","keys":[],"canary-7f3a":1}' % ("a" * 64),
    "unsigned": '{"version":1,"keys":[]}',
    "short": '{"version":1,"signing_key":"canary-7f3a","keys":[]}',
    "binary": "\0" * 100,
    "large": " " * (3 * 1024 * 1024),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_F94_a_broken_file_makes_no_key_valid_and_is_told_once(
    world: World, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = world.create()
    credential, whole = world.ask(key), world.path.read_bytes()
    assert credential is not None
    world.path.write_text(content)
    for _ in range(3):
        assert world.ask(key) is None
        assert not world.gateway.is_valid(credential)
        assert world.gateway.signing_key() is None
    assert len(caplog.messages) == 1
    assert str(world.path) in caplog.messages[0]
    with pytest.raises((CorruptError, RefusedError)) as caught:
        world.create("other")
    assert "canary" not in f"{caplog.text}{caught.value}"
    assert world.path.read_text() == content, "a file that is not understood is not overwritten"
    world.path.write_bytes(whole)
    assert world.ask(key) == credential
    assert "can be read again" in caplog.messages[-1]


def test_one_id_twice_is_damage(world: World) -> None:
    key = world.create()
    content = json.loads(world.path.read_text())
    world.path.write_text(json.dumps(content | {"keys": content["keys"] * 2}))
    assert world.ask(key) is None
    with pytest.raises(CorruptError, match="two keys have one id"):
        world.command.records()


def test_a_file_that_others_may_read_is_refused_with_the_fix(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    key = world.create()
    assert world.ask(key) is not None
    world.path.chmod(0o644)
    assert world.ask(key) is None
    assert world.ask(key) is None
    assert len(caplog.messages) == 1
    with pytest.raises(RefusedError, match="chmod 600"):
        world.command.records()
    world.path.chmod(0o600)
    assert world.ask(key) is not None


def test_no_file_is_no_key_and_silent_but_one_that_vanishes_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    strange = format_key("a" * 12, "0" * 64)
    assert world.ask(strange) is None
    assert world.gateway.signing_key() is None
    assert not world.command.records()
    assert not caplog.messages
    assert not world.path.parent.exists(), "asking makes nothing"
    with pytest.raises(NotFoundError):
        world.command.revoke("a" * 12)
    assert not world.path.parent.exists()
    key = world.create()
    assert world.ask(key) is not None
    world.path.unlink()
    assert world.ask(key) is None
    assert world.ask(key) is None
    assert [message for message in caplog.messages if "gone" in message] == caplog.messages
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("kind", ["folder", "pipe", "circle"])
def test_what_is_no_file_is_refused_at_once(world: World, kind: str) -> None:
    world.path.parent.mkdir(mode=0o700)
    match kind:
        case "folder":
            world.path.mkdir(mode=0o700)
        case "pipe":
            os.mkfifo(world.path, 0o600)
        case _:
            world.path.symlink_to(world.path)
    assert world.ask(format_key("a" * 12, "0" * 64)) is None
    with pytest.raises(RefusedError, match=r"keys\.json"):
        world.create()


def test_a_link_is_followed_and_stays(world: World, tmp_path: Path) -> None:
    """Kubernetes mounts a secret as a link to a link, and changes it by changing that one."""
    key = world.create()
    old, new = tmp_path / "old", tmp_path / "new"
    world.path.parent.rename(old)
    data = tmp_path / "..data"
    data.symlink_to(old)
    world.path.parent.mkdir()
    world.path.symlink_to(data / "keys.json")
    assert world.ask(key) is not None
    world.create("other")
    assert world.path.is_symlink()
    assert len(world.command.records()) == 2
    new.mkdir()
    World(new / "keys.json").create()
    data.unlink()
    data.symlink_to(new)
    assert world.ask(key) is None


def test_a_write_that_fails_leaves_the_file_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = world.create()
    before = world.path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RefusedError, match="No space left"):
            world.create("other")
    assert world.path.read_bytes() == before
    assert sorted(path.name for path in world.path.parent.iterdir()) == [
        "keys.json",
        "keys.json.lock",
    ]
    assert world.ask(key) is not None


def test_what_a_killed_process_left_is_in_nobodys_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Path) -> None:
        raise OSError(5, "the process is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(RefusedError):
            world.create()
    assert [path for path in world.path.parent.iterdir() if ".new" in path.name]
    assert world.ask(world.create()) is not None


def test_what_does_not_fit_is_refused_and_makes_nothing(world: World) -> None:
    for tenant, name, ends in (
        ("Acme", "ci", None),
        ("acme", "two words", None),
        ("acme", "ci", world.clock.now_ms()),
        ("acme", "ci", 2**60),
    ):
        with pytest.raises(UsageError):
            world.command.create(TenantId(tenant), name, DEFAULT_SCOPES, ends)
    with pytest.raises(UsageError, match="scopes"):
        world.command.create(ACME, "ci", (), None)
    assert not world.path.exists()


def test_the_key_that_signs_pages_is_the_files(world: World) -> None:
    world.create()
    signing_key = world.command.signing_key()
    assert signing_key is not None
    assert len(signing_key) == 32
    world.create()
    assert World(world.path).gateway.signing_key() == signing_key


def start(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.keys_child", str(path), name, str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_lose_no_key_and_a_reader_sees_whole_files(world: World) -> None:
    key = world.create("first")
    children = [start(world.path, name, 30) for name in ("a", "b")]
    made: list[str] = []
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        while any(child.poll() is None for child in children):
            assert world.ask(key) is not None
        for child in children:
            made += child.communicate()[0].split()
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert len(made) == 60
    assert len(world.command.records()) == 61
    assert all(world.ask(each) is not None for each in made)


async def test_the_last_use_is_kept_beside_the_file(world: World) -> None:
    used, idle = world.create("used"), world.create("idle")
    await world.gateway.save_uses()
    assert not (world.path.parent / "keys.json.used").exists()
    assert world.ask(idle[:-1]) is None
    assert world.ask(used) is not None
    await world.gateway.save_uses()
    first = world.command.uses()
    assert first == {id_of(used): world.clock.now_ms()}
    # Another gateway that lags behind takes nothing back; one that has no news writes nothing.
    late = KeysFile(world.path, ManualClock(world.clock.now_ms() - HOUR_MS))
    assert late.verify(used) is not None
    await late.save_uses()
    assert world.command.uses() == first
    saved = (world.path.parent / "keys.json.used").stat()
    await late.save_uses()
    assert (world.path.parent / "keys.json.used").stat().st_ino == saved.st_ino
    assert saved.st_mode & 0o777 == 0o600


async def test_uses_that_cannot_be_saved_cost_nothing_and_come_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = world.create()
    assert world.ask(key) is not None
    used_ms = world.clock.now_ms()

    def read_only(descriptor: int) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", read_only)
        await world.gateway.save_uses()
    assert world.command.uses() == {}
    assert world.gateway.uses() == {id_of(key): used_ms}
    await world.gateway.save_uses()
    assert world.command.uses() == {id_of(key): used_ms}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": "b", "c": -1, "d": true}', b"\xff"])
async def test_damaged_uses_are_unknown(world: World, content: bytes) -> None:
    key = world.create()
    beside = world.path.parent / "keys.json.used"
    beside.touch(0o600)
    beside.write_bytes(content)
    assert world.command.uses() == {}
    assert world.ask(key) is not None
    await world.gateway.save_uses()
    assert world.command.uses() == {id_of(key): world.clock.now_ms()}


async def test_a_lost_keys_file_does_not_lose_the_uses(world: World) -> None:
    key = world.create()
    assert world.ask(key) is not None
    await world.gateway.save_uses()
    saved, whole = world.command.uses(), world.path.read_bytes()
    assert world.ask(key) is not None
    world.path.write_text("")
    world.clock.advance(KEYS_LOOK_MS)
    await world.gateway.save_uses()
    assert world.command.uses() == saved
    world.path.write_bytes(whole)


def test_errors_are_of_the_tree(world: World) -> None:
    world.create()
    with pytest.raises(ThreadlogError):
        world.command.revoke("b" * 12)
