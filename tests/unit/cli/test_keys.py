"""`threadlog keys`: the key alone on stdout, once, and nowhere else."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from tests.arch.tree import ROOT
from tests.helpers.json_schema import findings
from threadlog.adapters.keys.file import KeysFile
from threadlog.api.keys import DEFAULT_SCOPES, parse_key
from threadlog.cli.keys import parse_expiry
from threadlog.cli.main import main
from threadlog.clock import ManualClock, SystemClock
from threadlog.errors import UsageError

NOW_MS = ManualClock().now_ms()
DAY_MS = 86_400_000


class Terminal(io.StringIO):
    """A person at the keyboard who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THREADLOG_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return tmp_path / "data" / "keys.json"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> "Said":
    return Said(capsys)


class Said:
    """Runs commands; what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def by(self, line: str, code: int = 0) -> tuple[str, str]:
        assert main(line.split()) == code
        out, err = self._capsys.readouterr()
        return out, err

    def document(self, line: str, schema: str, code: int = 0) -> dict[str, object]:
        out, _ = self.by(f"{line} --json", code)
        assert out.count("\n") == 1
        found = json.loads(out)
        assert isinstance(found, dict)
        wanted = json.loads((ROOT / f"schemas/cli/{schema}.schema.json").read_text())
        assert findings(found, wanted) == []
        return found


def key_and_id(line: str) -> tuple[str, str]:
    key = line.removesuffix("\n")
    parsed = parse_key(key)
    assert parsed is not None
    return key, parsed[0]


def test_F94_create_prints_the_key_alone_and_once(said: Said, file: Path) -> None:
    out, err = said.by("keys create --tenant acme --name ci --expires 90")
    key, key_id = key_and_id(out)
    assert key_id in err
    assert "shown this once" in err
    assert key[28:] not in err
    credential = KeysFile(file, SystemClock()).verify(key)
    assert credential is not None
    assert credential.tenant == "acme"
    assert credential.scopes == set(DEFAULT_SCOPES)
    shown = "".join(said.by("keys ls") + said.by("keys ls --json"))
    shown += "".join(said.by(f"keys revoke {key_id} --yes"))
    assert key[28:] not in shown + file.read_text()


def test_F94_create_as_a_document(said: Said, file: Path) -> None:
    made = said.document(
        "keys create --name ops --scope admin --scope ops:read --scope admin", "keys-create"
    )
    key, key_id = key_and_id(str(made["key"]))
    assert (made["key_id"], made["tenant"]) == (key_id, "local")
    assert (made["scopes"], made["expires_at"]) == (["ops:read", "admin"], None)
    assert KeysFile(file, SystemClock()).verify(key) is not None


def test_ls_shows_keys_of_one_tenant_or_of_all(said: Said, file: Path) -> None:
    assert said.document("keys ls", "keys-ls") == {"keys": []}
    out, err = said.by("keys ls")
    assert out == ""
    assert "threadlog keys create" in err
    assert not file.parent.exists(), "looking makes nothing"
    _, key_id = key_and_id(said.by("keys create --name ci --tenant acme")[0])
    said.by("keys create --name laptop")
    entries = said.document("keys ls --tenant acme", "keys-ls")["keys"]
    assert isinstance(entries, list)
    assert [(e["key_id"], e["status"], e["last_used_at"]) for e in entries] == [
        (key_id, "active", None)
    ]
    head, first, second = said.by("keys ls")[0].splitlines()
    assert head.split()[:4] == ["KEY", "TENANT", "NAME", "STATUS"]
    assert first.split()[:4] == [key_id, "acme", "ci", "active"]
    assert "unknown" in first
    assert second.split()[1:4] == ["local", "laptop", "active"]


async def use(file: Path, key: str) -> int:
    clock = ManualClock(SystemClock().now_ms())
    gateway = KeysFile(file, clock)
    assert gateway.verify(key) is not None
    await gateway.save_uses()
    return clock.now_ms()


def test_ls_shows_when_a_key_was_used(said: Said, file: Path) -> None:
    key, _ = key_and_id(said.by("keys create --name ci")[0])
    asyncio.run(use(file, key))
    entries = said.document("keys ls", "keys-ls")["keys"]
    assert isinstance(entries, list)
    assert str(entries[0]["last_used_at"]).endswith("Z")
    assert "unknown" not in said.by("keys ls")[0]


def test_F94_revoke_asks_a_person(said: Said, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, key_id = key_and_id(said.by("keys create --name ci")[0])
    _, err = said.by(f"keys revoke {key_id}", code=2)
    assert "--yes" in err
    for answer in ("", "\n", "no\n", "yess\n"):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        _, err = said.by(f"keys revoke {key_id}", code=1)
        assert "nothing was revoked" in err
    assert KeysFile(file, SystemClock()).verify(key) is not None
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    out, err = said.by(f"keys revoke {key_id}")
    assert out == ""
    assert "is revoked" in err
    assert KeysFile(file, SystemClock()).verify(key) is None


def test_F94_revoke_as_a_document_and_twice(said: Said) -> None:
    _, key_id = key_and_id(said.by("keys create --name ci")[0])
    first = said.document(f"keys revoke {key_id} --yes", "keys-revoke")
    assert (first["key_id"], first["status"]) == (key_id, "revoked")
    assert said.document(f"keys revoke {key_id} --yes", "keys-revoke") == first


def test_F94_a_third_key_of_a_name_is_refused_with_what_to_revoke(said: Said) -> None:
    _, first = key_and_id(said.by("keys create --name ci")[0])
    said.by("keys create --name ci")
    out, err = said.by("keys create --name ci", code=6)
    assert out == ""
    assert f"threadlog keys revoke {first}" in err


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("create", 2, "--name"),
        ("create --name a/b", 2, "name"),
        ("create --name ci --tenant Acme", 2, "--tenant"),
        ("create --name ci --scope all", 2, "threads:read"),
        ("create --name ci --expires soon", 2, "2027-01-31"),
        ("create --name ci --expires 2020-01-01", 2, "end before it begins"),
        ("ls --tenant A", 2, "--tenant"),
        ("revoke", 2, "ID"),
        ("revoke short", 2, "12 characters"),
        ("revoke abcdefghijkl --yes", 5, "keys ls"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_fix(
    said: Said, file: Path, line: str, code: int, says: str
) -> None:
    out, err = said.by(f"keys {line}", code)
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
    assert not file.exists()
    assert str(said.document(f"keys {line}", "problem", code)["detail"]) in err


def test_F94_a_whole_key_given_as_an_id_is_not_repeated(said: Said) -> None:
    key, _ = key_and_id(said.by("keys create --name ci")[0])
    out, err = said.by(f"keys revoke {key} --yes --json", code=2)
    assert key[28:] not in out + err


def test_a_file_that_is_open_or_damaged_says_what_to_do(said: Said, file: Path) -> None:
    said.by("keys create --name ci")
    file.chmod(0o604)
    assert "chmod 600" in said.by("keys ls", code=1)[1]
    file.chmod(0o600)
    file.write_text("{")
    assert "restore it" in said.by("keys create --name ci", code=1)[1]


def test_without_a_verb_there_is_help(said: Said) -> None:
    out, err = said.by("keys", code=2)
    assert out == ""
    assert err.startswith("Examples:\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("1", NOW_MS + DAY_MS),
        ("3650", NOW_MS + 3_650 * DAY_MS),
        ("2027-01-31", 1_801_353_600_000),
        ("2027-01-31T00:00:00Z", 1_801_353_600_000),
        ("2027-01-31T02:00:00.500+02:00", 1_801_353_600_500),
    ],
)
def test_an_end_is_days_or_a_date(text: str | None, expected: int | None) -> None:
    assert parse_expiry(text, NOW_MS) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "3651", "-1", "1.5", "٣", "2027-1-31", "2027-13-01", "2027-02-30", "20270131"),
        *("2027-01-31T00:00:00", "2027-01-31 00:00:00Z", "2027-01-31T25:00:00Z", "2027-W05-1"),
        "2027-01-31T00:00:00+::::::",
    ],
)
def test_what_is_no_end_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--expires"):
        parse_expiry(text, NOW_MS)
