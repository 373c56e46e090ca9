"""The gateway of the settings: its address says nothing more, and its key is never shown."""

import traceback
from pathlib import Path

import pytest

from threadlog.cli.remote import settings_at
from threadlog.cli.terminal import Screen
from threadlog.errors import UsageError
from threadlog.settings import Settings, load_settings
from threadlog.settings_parts import gateway_base, is_private

CANARY = "canary-7f3a"


def refusal(**variables: object) -> str:
    """What a person reads, with everything that a traceback would show besides."""
    with pytest.raises(UsageError) as caught:
        Settings(**variables).gateway_key()  # type: ignore[arg-type]  # wrong on purpose
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://threadlog.example.com", "https://threadlog.example.com"),
        ("https://threadlog.example.com/", "https://threadlog.example.com"),
        ("HTTP://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_address_is_scheme_host_and_port(url: str, base: str) -> None:
    assert gateway_base(url, "X") == base
    assert Settings(url=url).at(None).url == url
    assert Settings().at(url).url == base


@pytest.mark.parametrize(
    "url",
    [
        "",
        CANARY,
        f"ftp://{CANARY}",
        f"https://{CANARY}@host",
        f"https://u:{CANARY}@host",
        f"https://host/{CANARY}",
        f"https://host?{CANARY}",
        "https://host?",
        f"https://host#{CANARY}",
        f"https://host\\{CANARY}",
        f"https://ho st{CANARY}",
        "https://höst",
        "https://host:99999",
        "https://[::1",
        "https://:80",
        "https://host\n",
    ],
)
def test_what_says_more_or_less_is_refused_and_not_repeated(url: str) -> None:
    said = refusal(url=url)
    assert said.startswith("THREADLOG_URL: ")
    with pytest.raises(UsageError, match="--url: "):
        Settings().at(url)


@pytest.mark.parametrize(
    ("base", "private"),
    [
        ("https://threadlog.example.com", True),
        ("http://127.0.0.1:1", True),
        ("http://127.8.9.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("http://localhost.example.com", False),
        ("http://10.0.0.1", False),
        ("http://0.0.0.0", False),
    ],
)
def test_what_is_not_encrypted_is_warned_of(
    base: str, private: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_private(base) is private
    settings_at(base, Screen())
    assert ("not encrypted" in capsys.readouterr().err) is not private


def test_a_key_comes_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(f" {CANARY}\n")
    assert Settings(key_file=file).gateway_key() == CANARY
    monkeypatch.setenv("THREADLOG_KEY", CANARY)
    settings = load_settings()
    assert settings.gateway_key() == CANARY
    assert CANARY not in repr(settings)


def test_what_is_no_key_is_refused_by_the_name_of_its_variable(tmp_path: Path) -> None:
    assert "set THREADLOG_KEY_FILE" in refusal()
    file = tmp_path / "key"
    assert "cannot be read" in refusal(key_file=file)
    file.write_text("")
    assert "is empty" in refusal(key_file=file)
    file.write_text(f"{CANARY}\nX-Other: 1")
    assert refusal(key_file=file).startswith("THREADLOG_KEY_FILE: this is no key")
    assert refusal(key=f"{CANARY} ").startswith("THREADLOG_KEY: this is no key")
    assert "both set" in refusal(key=CANARY, key_file=file)
