"""Settings of the gateway: lists with commas, and where the keys lie."""

import traceback
from pathlib import Path

import pytest

from threadlog.errors import UsageError
from threadlog.settings import load_settings

GATEWAY = "THREADLOG_GATEWAY__"
CANARY = "canary 7f3a"


def test_nothing_set_listens_on_loopback_and_names_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THREADLOG_DATA_DIR", str(tmp_path))
    settings = load_settings()
    gateway = settings.gateway
    assert (gateway.host, gateway.port) == ("127.0.0.1", None)
    assert gateway.origins == gateway.hosts == gateway.models == ()
    assert (gateway.requests_per_minute, gateway.streams_per_tenant) == (6_000, 1_000)
    assert gateway.waits_per_tenant == 256
    assert settings.keys_file() == tmp_path / "keys.json"


def test_lists_have_commas_between_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{GATEWAY}ORIGINS", "https://app.example.com, http://localhost:3000")
    monkeypatch.setenv(f"{GATEWAY}HOSTS", "threadlog.example.com")
    monkeypatch.setenv(f"{GATEWAY}MODELS", "openai/small,openai/org/large:1")
    monkeypatch.setenv(f"{GATEWAY}KEYS_FILE", "/etc/threadlog/keys.json")
    settings = load_settings()
    assert settings.gateway.origins == ("https://app.example.com", "http://localhost:3000")
    assert settings.gateway.hosts == ("threadlog.example.com",)
    assert settings.gateway.models == ("openai/small", "openai/org/large:1")
    assert settings.keys_file() == Path("/etc/threadlog/keys.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ORIGINS", ""),
        ("ORIGINS", "*"),
        ("ORIGINS", "null"),
        ("ORIGINS", "https://a.example.com/"),
        ("ORIGINS", f"https://a.example.com,{CANARY}"),
        ("ORIGINS", '["https://a.example.com"]'),
        ("HOSTS", "a.example.com,"),
        ("HOSTS", "https://a.example.com"),
        ("HOSTS", "*"),
        ("MODELS", "small"),
        ("MODELS", CANARY),
        ("PORT", "65536"),
        ("REQUESTS_PER_MINUTE", "0"),
        ("STREAMS_PER_TENANT", "0"),
        ("WAITS_PER_TENANT", "0"),
        ("HOST", ""),
    ],
)
def test_what_does_not_fit_is_named_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"{GATEWAY}{name}", value)
    with pytest.raises(UsageError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{GATEWAY}{name}: ")
    assert CANARY not in "".join(traceback.format_exception(caught.value))
