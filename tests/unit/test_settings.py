"""Settings of a cluster: how they fit together, and that no message shows a value."""

import traceback
from pathlib import Path

import pytest

from threadlog.errors import UsageError
from threadlog.limits import CALL_TIMEOUT_MS
from threadlog.settings import (
    AnthropicSettings,
    OpenAISettings,
    Settings,
    load_settings,
)

CANARY = "canary-7f3a"
KAFKA = {"KAFKA__BOOTSTRAP": "kafka:9092"}
CLUSTER = KAFKA | {"REDIS__URL": "redis://redis:6379/0", "BLOBS__URL": "file:///srv/blobs"}
SASL = KAFKA | {"KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "KAFKA__SASL_MECHANISM": "SCRAM-SHA-512"}
USER = {"KAFKA__SASL_USERNAME": "planner"}


class Environment:
    """Sets variables, `THREADLOG_` put before each."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def load(self, variables: dict[str, str]) -> Settings:
        for name, value in variables.items():
            self._patch.setenv(f"THREADLOG_{name}", value)
        return load_settings()

    def refusal(self, variables: dict[str, str]) -> str:
        """What a person reads, with everything that a traceback would show besides."""
        with pytest.raises(UsageError) as caught:
            self.load(variables)
        assert CANARY not in "".join(traceback.format_exception(caught.value))
        return str(caught.value)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    return Environment(monkeypatch)


def test_nothing_set_is_no_cluster(environment: Environment) -> None:
    settings = environment.load({})
    assert not settings.is_cluster
    assert settings.blobs_folder() is None
    assert settings.redis.address() is None
    assert settings.kafka.password() is None
    assert (settings.kafka.prefix, settings.kafka.partitions) == ("threadlog", 16)
    assert settings.metrics.port is None
    assert settings.worker.drain_timeout_ms > CALL_TIMEOUT_MS
    with pytest.raises(UsageError, match="THREADLOG_KAFKA__BOOTSTRAP"):
        settings.check_cluster()


def test_a_whole_cluster(environment: Environment) -> None:
    settings = environment.load(CLUSTER | {"METRICS__PORT": "0", "KAFKA__PARTITIONS": "4"})
    settings.check_cluster()
    assert settings.is_cluster
    assert settings.blobs_folder() == Path("/srv/blobs")
    assert (settings.metrics.port, settings.kafka.partitions) == (0, 4)


@pytest.mark.parametrize("missing", ["REDIS__URL", "BLOBS__URL"])
def test_a_cluster_names_what_is_missing_with_an_example(
    environment: Environment, missing: str
) -> None:
    settings = environment.load({name: CLUSTER[name] for name in CLUSTER if name != missing})
    with pytest.raises(UsageError, match=rf"set THREADLOG_{missing}, for example.*://"):
        settings.check_cluster()


@pytest.mark.parametrize("name", ["REDIS__URL", "REDIS__URL_FILE"])
def test_a_redis_without_a_kafka_is_refused(environment: Environment, name: str) -> None:
    refusal = environment.refusal({name: f"redis://{CANARY}"})
    assert "Redis" in refusal
    assert "set THREADLOG_KAFKA__BOOTSTRAP" in refusal


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"KAFKA__BOOTSTRAP": ""}, "KAFKA__BOOTSTRAP"),
        ({"KAFKA__BOOTSTRAP": f"{CANARY}, b"}, "KAFKA__BOOTSTRAP"),
        ({"KAFKA__PREFIX": f"/{CANARY}"}, "KAFKA__PREFIX"),
        ({"KAFKA__PREFIX": "a" * 41}, "KAFKA__PREFIX"),
        ({"KAFKA__PREFIX": "a\n"}, "KAFKA__PREFIX"),
        ({"KAFKA__PARTITIONS": "0"}, "KAFKA__PARTITIONS"),
        ({"KAFKA__PARTITIONS": "1025"}, "KAFKA__PARTITIONS"),
        ({"KAFKA__PARTITIONS": CANARY}, "KAFKA__PARTITIONS"),
        ({"KAFKA__REPLICATION": "8"}, "KAFKA__REPLICATION"),
        ({"KAFKA__HEARTBEAT_MS": "2001"}, "KAFKA__HEARTBEAT_MS"),
        ({"KAFKA__SECURITY_PROTOCOL": CANARY}, "KAFKA__SECURITY_PROTOCOL"),
        ({"KAFKA__SSL_CA": CANARY}, "KAFKA__SECURITY_PROTOCOL"),
        ({"KAFKA__SASL_MECHANISM": CANARY}, "KAFKA__SECURITY_PROTOCOL"),
        ({"KAFKA__SASL_PASSWORD": CANARY}, "KAFKA__SASL_PASSWORD"),
        ({"KAFKA__SASL_PASSWORD_FILE": CANARY}, "KAFKA__SASL_PASSWORD"),
        ({"KAFKA__SECURITY_PROTOCOL": "SASL_SSL"}, "KAFKA__SASL_MECHANISM"),
        (SASL, "KAFKA__SASL_USERNAME"),
        (SASL | USER, "KAFKA__SASL_PASSWORD"),
        (
            SASL | USER | {"KAFKA__SASL_PASSWORD": CANARY, "KAFKA__SASL_PASSWORD_FILE": CANARY},
            "KAFKA__SASL_PASSWORD_FILE",
        ),
        ({"REDIS__URL": CANARY, "REDIS__URL_FILE": CANARY}, "REDIS__URL_FILE"),
        ({"METRICS__PORT": "65536"}, "METRICS__PORT"),
        ({"WORKER__DRAIN_TIMEOUT_MS": "-1"}, "WORKER__DRAIN_TIMEOUT_MS"),
        ({"KAFKA": f'{{"bootstrap": "{CANARY}"}}'}, "KAFKA"),
    ],
)
def test_what_does_not_fit_is_named_and_never_shown(
    environment: Environment, variables: dict[str, str], named: str
) -> None:
    assert f"THREADLOG_{named}" in environment.refusal(variables)


def test_a_password_comes_from_its_variable(environment: Environment) -> None:
    settings = environment.load(CLUSTER | SASL | USER | {"KAFKA__SASL_PASSWORD": CANARY})
    settings.check_cluster()
    assert settings.kafka.password() == CANARY
    assert CANARY not in f"{settings!r}{settings}{settings.model_dump()}"


def test_secrets_come_from_files_without_the_space_around(
    environment: Environment, tmp_path: Path
) -> None:
    password, url = tmp_path / "password", tmp_path / "url"
    password.write_text(f" {CANARY}\n")
    url.write_text(f"rediss://:{CANARY}@redis:6379\n")
    files = {"KAFKA__SASL_PASSWORD_FILE": str(password), "REDIS__URL_FILE": str(url)}
    settings = environment.load(SASL | USER | files | {"BLOBS__URL": "file:///srv/blobs"})
    settings.check_cluster()
    assert settings.kafka.password() == CANARY
    assert settings.redis.address() == f"rediss://:{CANARY}@redis:6379"
    assert CANARY not in repr(settings)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe\xff"])
def test_a_secret_file_that_is_no_use_is_named(
    environment: Environment, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    secrets = {"KAFKA__SASL_PASSWORD_FILE": str(file), "REDIS__URL_FILE": str(file)}
    settings = environment.load(SASL | USER | secrets)
    with pytest.raises(UsageError, match="THREADLOG_KAFKA__SASL_PASSWORD_FILE: the file"):
        settings.kafka.password()
    with pytest.raises(UsageError, match="THREADLOG_REDIS__URL_FILE: the file"):
        settings.redis.address()


def test_a_redis_address_has_a_scheme_of_redis(environment: Environment) -> None:
    settings = environment.load(KAFKA | {"REDIS__URL": f"http://{CANARY}"})
    assert CANARY not in repr(settings)
    with pytest.raises(UsageError, match=r"THREADLOG_REDIS__URL: .*redis://") as caught:
        settings.redis.address()
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://{CANARY}",
        f"/{CANARY}",
        f"file://{CANARY}/blobs",
        f"file:{CANARY}",
        f"file:///{CANARY}?x=1",
        f"file:///{CANARY}#x",
        f"file:///{CANARY}%00",
        f"file://[{CANARY}",
    ],
)
def test_blobs_lie_in_a_folder_so_far(environment: Environment, url: str) -> None:
    settings = environment.load({"BLOBS__URL": url})
    with pytest.raises(UsageError, match="THREADLOG_BLOBS__URL: only file: URLs") as caught:
        settings.blobs_folder()
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:///srv/my%20blobs", "/srv/my blobs"),
        ("file:/srv/blobs", "/srv/blobs"),
        ("file://localhost/srv/blobs/", "/srv/blobs"),
        ("file:////srv/blobs", "/srv/blobs"),
    ],
)
def test_a_file_url_is_a_folder(environment: Environment, url: str, folder: str) -> None:
    assert environment.load({"BLOBS__URL": url}).blobs_folder() == Path(folder)


@pytest.mark.parametrize(
    ("prefix", "kind"), [("OPENAI", OpenAISettings), ("ANTHROPIC", AnthropicSettings)]
)
def test_providers_are_set_by_the_names_of_their_sdks(
    monkeypatch: pytest.MonkeyPatch, prefix: str, kind: type[OpenAISettings | AnthropicSettings]
) -> None:
    assert not kind().is_set
    monkeypatch.setenv(f"{prefix}_MODEL", "small")
    assert not kind().is_set
    for name, value in (("API_KEY", CANARY), ("BASE_URL", "http://127.0.0.1:9")):
        with monkeypatch.context() as patch:
            patch.setenv(f"{prefix}_{name}", value)
            assert kind().is_set
            assert CANARY not in repr(kind())
    assert kind().model == "small"
