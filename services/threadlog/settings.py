"""Settings: the only reader of the environment.

Every variable is `THREADLOG_…`, nested with `__`; one that is not known here is an error, since a
misspelt one would otherwise be silently without effect. `OPENAI_…` and `ANTHROPIC_…` are read too,
as their SDKs do: `API_KEY`, `BASE_URL`, and our own `MODEL`. A message of an error names the
variable and what to do, and never repeats a value, which may be a secret.
"""

import difflib
import os
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from threadlog.errors import UsageError
from threadlog.limits import PARTITIONS_MAX
from threadlog.settings_parts import (
    MeteringSettings,
    Section,
    SettingError,
    ToldSettings,
    WorkerSettings,
    both_set,
    content_of,
    gateway_base,
)

_PREFIX = "THREADLOG_"
_KAFKA = f"{_PREFIX}KAFKA__"
_BOOTSTRAP = f"{_KAFKA}BOOTSTRAP"
_REDIS_URL = f"{_PREFIX}REDIS__URL"
_BLOBS_URL = f"{_PREFIX}BLOBS__URL"
_REDIS = "redis://redis:6379/0"
_BOOTSTRAP_HINT = f"set {_BOOTSTRAP}, for example to kafka:9092"
_BLOBS_HINT = "for example file:///var/lib/threadlog/blobs"

# An empty variable is a mistake of a template, not a way to say "none".
_Text = Annotated[str, Field(pattern=r"^\S+$")]
_T = TypeVar("_T")


def _parts(value: object) -> object:
    """The parts of a variable that holds a list."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


_Listed = Annotated[tuple[_T, ...], NoDecode, BeforeValidator(_parts)]


class LogSettings(Section):
    """The embedded log. `file` None: `threadlog.db` in the data folder."""

    file: Path | None = None


class ToolRunnerSettings(Section):
    """The tool-runner. `workspaces` None: `workspaces` in the data folder."""

    workspaces: Path | None = None


class _ScriptedSettings(Section):
    """The scripted model. `script` None: there is none."""

    script: Path | None = None


class KafkaSettings(Section):
    """The log of a cluster. `bootstrap` None: there is no cluster, the log is embedded.

    Shapes:  `prefix` begins the name of every topic and group: `<prefix>.events`,
             `<prefix>.planner`. `partitions`: the pinned number of the events topic, which the live
             one must equal. `replication`: what `topics apply` creates with.
    """

    bootstrap: _Text | None = None
    prefix: str = Field(default="threadlog", pattern=r"^[a-z0-9._-]{1,40}$")
    partitions: int = Field(default=16, ge=1, le=PARTITIONS_MAX)
    replication: int = Field(default=3, ge=1, le=7)
    member_timeout_ms: int = Field(default=6_000, ge=1_000, le=1_800_000)
    heartbeat_ms: int = Field(default=500, ge=100)
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: _Text | None = None
    sasl_username: _Text | None = None
    sasl_password: SecretStr | None = Field(default=None, repr=False)
    sasl_password_file: Path | None = None
    ssl_ca: Path | None = None

    @model_validator(mode="after")
    def _times_and_certificate_fit(self) -> Self:
        if self.member_timeout_ms < 3 * self.heartbeat_ms:
            # One late heartbeat must not cost a worker its partitions.
            raise UsageError(
                f"{_KAFKA}MEMBER_TIMEOUT_MS must be at least three times {_KAFKA}HEARTBEAT_MS"
            )
        if self.ssl_ca is not None and not self.security_protocol.endswith("SSL"):
            raise UsageError(f"{_KAFKA}SSL_CA needs {_KAFKA}SECURITY_PROTOCOL=SSL or SASL_SSL")
        return self

    @model_validator(mode="after")
    def _credentials_fit(self) -> Self:
        """None is missing, and none is set in vain."""
        credentials = {
            f"{_KAFKA}SASL_USERNAME": self.sasl_username,
            f"{_KAFKA}SASL_PASSWORD": self.sasl_password or self.sasl_password_file,
        }
        if self.sasl_password is not None and self.sasl_password_file is not None:
            raise UsageError(both_set(f"{_KAFKA}SASL_PASSWORD"))
        if not self.security_protocol.startswith("SASL_"):
            for name, value in {
                f"{_KAFKA}SASL_MECHANISM": self.sasl_mechanism,
                **credentials,
            }.items():
                if value is not None:
                    raise UsageError(f"{name} needs {_KAFKA}SECURITY_PROTOCOL=SASL_SSL")
        elif self.sasl_mechanism is None:
            raise UsageError(f"set {_KAFKA}SASL_MECHANISM, for example to SCRAM-SHA-512")
        elif self.sasl_mechanism.startswith(("PLAIN", "SCRAM")):
            for name, value in credentials.items():
                if value is None:
                    raise UsageError(f"set {name}: the SASL mechanism needs it")
        return self

    def password(self) -> str | None:
        """The SASL password, read now if it lies in a file.

        Raises:  UsageError: the file cannot be read.
        """
        if self.sasl_password_file is not None:
            return content_of(self.sasl_password_file, f"{_KAFKA}SASL_PASSWORD_FILE")
        return None if self.sasl_password is None else self.sasl_password.get_secret_value()


class RedisSettings(Section):
    """The Redis of a cluster, by address; `url_file` for an address that holds a password."""

    url: _Text | None = Field(default=None, repr=False)
    url_file: Path | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.url is not None and self.url_file is not None:
            raise UsageError(both_set(_REDIS_URL))
        return self

    @property
    def is_set(self) -> bool:
        """Whether there is an address; nothing is read."""
        return self.url is not None or self.url_file is not None

    def address(self) -> str | None:
        """The address with its password, read now if it lies in a file.

        Raises:  UsageError: the file cannot be read, or this is no address of a Redis.
        """
        name, url = _REDIS_URL, self.url
        if self.url_file is not None:
            name = f"{_REDIS_URL}_FILE"
            url = content_of(self.url_file, name)
        if url is not None and not url.startswith(("redis://", "rediss://", "unix://")):
            raise UsageError(f"{name}: an address begins with redis://, rediss:// or unix://")
        return url


class BlobsSettings(Section):
    """The blob store of a cluster: a folder that all its services share."""

    url: _Text | None = None


class MetricsSettings(Section):
    """Where metrics are served. `port` None: the service's own default; 0: a free one.

    `host`: loopback unless told otherwise; in a container 0.0.0.0, so that they can be scraped.
    """

    host: _Text = "127.0.0.1"
    port: int | None = Field(default=None, ge=0, le=65_535)


class GatewaySettings(Section):
    """The gateway, by itself or in `threadlog up`.

    Shapes:  `keys_file` None: `keys.json` in the data folder. `port` None: 8080; 0: a free one.
             `origins`: of web pages that may call it, besides its own. `hosts`: names under which
             it is reached, besides loopback. `models`: `provider/name` of a new thread; empty: any.
    """

    keys_file: Path | None = None
    host: _Text = "127.0.0.1"
    port: int | None = Field(default=None, ge=0, le=65_535)
    origins: _Listed[Annotated[str, Field(pattern=r"^https?://[a-z0-9.:\[\]-]+$")]] = ()
    hosts: _Listed[Annotated[str, Field(pattern=r"^[a-z0-9.:\[\]-]+$")]] = ()
    models: _Listed[Annotated[str, Field(pattern=r"^[^\s/]+/\S+$")]] = ()
    requests_per_minute: int = Field(default=6_000, ge=1)
    streams_per_tenant: int = Field(default=1_000, ge=1)
    waits_per_tenant: int = Field(default=256, ge=1)


class _Provider(BaseSettings):
    """A provider of models, by the names that its SDK knows. `base_url` None: its own address."""

    api_key: str | None = Field(default=None, repr=False)
    base_url: str | None = None
    model: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether this process can ask it."""
        return bool(self.api_key or self.base_url)


class OpenAISettings(_Provider):
    """The OpenAI-compatible provider."""

    model_config = SettingsConfigDict(env_prefix="OPENAI_", frozen=True, extra="ignore")


class AnthropicSettings(_Provider):
    """Anthropic, or a server of its wire form."""

    model_config = SettingsConfigDict(env_prefix="ANTHROPIC_", frozen=True, extra="ignore")


class Settings(ToldSettings, BaseSettings):
    """All settings, each with the default that a person on a laptop wants.

    Shapes:  `data_dir` None: `$XDG_DATA_HOME/threadlog`, for root `/var/lib/threadlog`. `model`:
             `provider/name`, or a name of the only provider. `prices`: a file with a price list.
             `revision`: the commit that it was built from, which an image knows; empty: unknown.
             `fault`: a crash point of `faults.POINTS`, for tests: `name` or `name:visit`.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    data_dir: Path | None = None
    log: LogSettings = LogSettings()
    tool_runner: ToolRunnerSettings = ToolRunnerSettings()
    scripted: _ScriptedSettings = _ScriptedSettings()
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    blobs: BlobsSettings = BlobsSettings()
    metrics: MetricsSettings = MetricsSettings()
    worker: WorkerSettings = WorkerSettings()
    gateway: GatewaySettings = GatewaySettings()
    metering: MeteringSettings = MeteringSettings()
    sandbox: Literal["bubblewrap", "off"] = "bubblewrap"
    model: str | None = None
    prices: Path | None = None
    revision: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    fault: str | None = None

    @model_validator(mode="after")
    def _has_no_half_cluster(self) -> Self:
        """A Redis alone would be without effect, which is never what was meant."""
        if self.redis.is_set and not self.is_cluster:
            raise UsageError(f"a Redis is set without a Kafka: {_BOOTSTRAP_HINT}, or unset it")
        return self

    def at(self, url: str | None) -> Self:
        """These settings with the gateway that a flag names; None: as they are.

        Raises:  UsageError: it is no address of one.
        """
        if url is None:
            return self
        return self.model_copy(update={"url": gateway_base(url, "--url")})

    @property
    def is_cluster(self) -> bool:
        """Whether the log is a Kafka; else it is the embedded one."""
        return self.kafka.bootstrap is not None

    def check_cluster(self) -> None:
        """Everything that a service of a cluster needs is set. For such a service only.

        Raises:  UsageError: the first variable that is missing or does not fit, with an example.
        """
        if not self.is_cluster:
            raise UsageError(f"a service of a cluster needs a Kafka: {_BOOTSTRAP_HINT}")
        self.kafka.password()
        if self.redis.address() is None:
            raise UsageError(f"a cluster needs a Redis: set {_REDIS_URL}, for example to {_REDIS}")
        if self.blobs_folder() is None:
            raise UsageError(f"a cluster needs a blob store: set {_BLOBS_URL}, {_BLOBS_HINT}")

    def blobs_folder(self) -> Path | None:
        """The folder of the blob store that services share; None: there is none.

        Raises:  UsageError: the address is not a `file:` URL with an absolute path.
        """
        return None if self.blobs.url is None else _file_url(self.blobs.url)

    def data_folder(self) -> Path:
        """Where files of this installation lie when nothing else is said."""
        if self.data_dir is not None:
            return self.data_dir.expanduser().absolute()
        if os.geteuid() == 0:
            return Path("/var/lib/threadlog")
        base = os.environ.get("XDG_DATA_HOME")
        home = Path(base) if base else Path.home() / ".local" / "share"
        return home / "threadlog"

    def log_file(self) -> Path:
        """The file of the embedded log."""
        named = self.log.file
        return (
            self.data_folder() / "threadlog.db" if named is None else named.expanduser().absolute()
        )

    def keys_file(self) -> Path:
        """The file of API keys."""
        named = self.gateway.keys_file
        return self.data_folder() / "keys.json" if named is None else named.expanduser().absolute()

    def workspaces_folder(self) -> Path:
        """The folder of managed workspaces."""
        named = self.tool_runner.workspaces
        return self.data_folder() / "workspaces" if named is None else named.expanduser().absolute()

    def socket_folder(self) -> Path | None:
        """`$XDG_RUNTIME_DIR/threadlog`, where sockets of this user may lie; None: there is none."""
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        return Path(runtime) / "threadlog" if runtime and Path(runtime).is_dir() else None


def load_settings() -> Settings:
    """The settings of the environment.

    Raises:  UsageError: an unknown variable, with the nearest known one, or a value that does not
             fit; the value is not repeated.
    """
    known = sorted(_names(Settings, _PREFIX))
    for name in os.environ:
        if name.startswith(_PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are: {', '.join(known)}"
            raise SettingError(name, f"unknown setting {name}{hint}")
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = _PREFIX + "__".join(p for p in first["loc"] if isinstance(p, str)).upper()
        raise SettingError(name, f"{name}: {first['msg']}") from error


def _file_url(url: str) -> Path:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    path = unquote(parts.path)
    is_plain = parts.netloc in ("", "localhost") and not parts.query and not parts.fragment
    is_local = parts.scheme == "file" and path.startswith("/") and "\0" not in path
    if not (is_plain and is_local):
        raise UsageError(
            f"{_BLOBS_URL}: only file: URLs with an absolute path are supported, {_BLOBS_HINT}"
        )
    return Path("/" + path.lstrip("/"))


def _names(model: type[BaseModel], prefix: str) -> list[str]:
    """The variables of a settings model, nested ones included."""
    names: list[str] = []
    for field, info in model.model_fields.items():
        kind = info.annotation
        name = f"{prefix}{field.upper()}"
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += _names(kind, f"{name}__")
        else:
            names.append(name)
    return names
