"""The text of an API key: one spelling, and a slip is refused without a look at any key."""

import json
import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from threadlog.api.keys import (
    DEFAULT_SCOPES,
    KEY_PATTERN,
    SCOPES,
    KeyRecord,
    credential_of,
    format_key,
    parse_key,
    secret_hash,
)

KEY_ID = "abc123def456"
SECRET = "0123456789abcdef" * 4
KEY = format_key(KEY_ID, SECRET)
RECORD: dict[str, object] = {
    "id": KEY_ID,
    "tenant": "acme",
    "name": "ci",
    "scopes": list(DEFAULT_SCOPES),
    "sha256": secret_hash(SECRET),
    "created_at_ms": 1_000,
    "expires_at_ms": 2_000,
    "revoked_at_ms": None,
}


def record(**changes: object) -> KeyRecord:
    return KeyRecord.model_validate_json(json.dumps(RECORD | changes))


def test_F94_a_key_is_its_id_its_secret_and_their_checksum() -> None:
    body = f"threadlog_live_{KEY_ID}_{SECRET}"
    assert f"{body}{zlib.crc32(body.encode()):08x}" == KEY
    assert parse_key(KEY) == (KEY_ID, SECRET)
    assert secret_hash(SECRET) != secret_hash(SECRET[::-1])
    assert len(secret_hash(SECRET)) == 64


@given(
    st.text(
        alphabet=st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789"), min_size=12, max_size=12
    ),
    st.binary(min_size=32, max_size=32),
)
def test_every_key_is_read_back_and_found_by_scanners(key_id: str, secret: bytes) -> None:
    key = format_key(key_id, secret.hex())
    assert parse_key(key) == (key_id, secret.hex())
    found = re.findall(KEY_PATTERN, f'curl -H "Authorization: Bearer {key}" # x')
    assert found == [key]


@given(st.data())
def test_F94_every_slip_is_refused(data: st.DataObject) -> None:
    """One character other, missing, more, or two that changed places: the checksum sees each."""
    at = data.draw(st.integers(0, len(KEY) - 1))
    slip = data.draw(st.sampled_from(["other", "missing", "more", "swapped", "cut"]))
    char = data.draw(
        st.sampled_from("0123456789abcdefghijklmnopqrstuvwxyzABCDEF_- \n\0é\u0663\uff10")
    )
    match slip:
        case "other":
            typed = KEY[:at] + char + KEY[at + 1 :]
        case "missing":
            typed = KEY[:at] + KEY[at + 1 :]
        case "more":
            typed = KEY[:at] + char + KEY[at:]
        case "swapped":
            typed = KEY[:at] + KEY[at : at + 2][::-1] + KEY[at + 2 :]
        case _:
            typed = KEY[:at]
    assert typed == KEY or parse_key(typed) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        KEY.upper(),
        KEY + "\n",
        f" {KEY}",
        f"Bearer {KEY}",
        KEY * 2,
        KEY.replace("live", "test"),
        KEY[:-8],
        KEY[:-8].translate({ord("0"): "\uff10"}) + KEY[-8:],
        "\udcff" * len(KEY),
        "threadlog_live_" * 100_000,
        # Whole in its checksum and wrong in its form: capitals, a longer secret, a shorter id.
        format_key(KEY_ID.upper(), SECRET),
        format_key(KEY_ID, SECRET.upper()),
        format_key(KEY_ID, SECRET + "0"),
        format_key(KEY_ID[1:], SECRET),
        format_key(f"{KEY_ID[1:]}_", SECRET),
    ],
)
def test_any_other_text_is_no_key(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "abc"},
        {"id": KEY_ID + "\n"},
        {"tenant": "Acme"},
        {"tenant": "a/b"},
        {"name": ""},
        {"name": "two words"},
        {"name": "\x1b[2J"},
        {"scopes": []},
        {"scopes": ["threads:read", "threads:read"]},
        {"scopes": ["everything"]},
        {"scopes": "admin"},
        {"sha256": secret_hash(SECRET).upper()},
        {"sha256": "abc"},
        {"created_at_ms": "1000"},
        {"created_at_ms": 1.5},
        {"created_at_ms": -1},
        {"expires_at_ms": True},
        {"expires_at_ms": 2**60},
        {"expires_at": 5},
    ],
)
def test_a_record_is_strict(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        record(**changes)


def test_a_record_says_all_of_itself() -> None:
    """A misspelt or missing end must not be a key without one."""
    for name in RECORD:
        with pytest.raises(ValidationError):
            KeyRecord.model_validate_json(
                json.dumps({n: v for n, v in RECORD.items() if n != name})
            )
    assert secret_hash(SECRET) not in f"{record()!r}{record()}"


@pytest.mark.parametrize(
    ("expires", "revoked", "now", "is_active"),
    [
        (None, None, 10**12, True),
        (2_000, None, 1_999, True),
        (2_000, None, 2_000, False),
        (None, 1_500, 1_000, False),
        (2_000, 0, 1_000, False),
    ],
)
def test_a_key_ends_at_its_time_or_when_it_is_revoked(
    expires: int | None, revoked: int | None, now: int, is_active: bool
) -> None:
    kept = record(expires_at_ms=expires, revoked_at_ms=revoked)
    assert kept.is_active(now) is is_active


def test_a_credential_is_what_the_record_says() -> None:
    credential = credential_of(record(scopes=["admin"]))
    assert credential.tenant == "acme"
    assert credential.scopes == {"admin"}
    assert (credential.actor, credential.expires_at_ms) == (f"key:{KEY_ID}", 2_000)
    assert set(DEFAULT_SCOPES) < set(SCOPES)
