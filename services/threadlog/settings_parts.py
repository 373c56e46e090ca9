"""Parts of the settings that stand alone: secrets in files, the gateway that commands talk to, and
what of a process is told.

No message of an error repeats a value, which may be a secret.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

from threadlog.errors import UsageError
from threadlog.limits import (
    METERED_TENANTS_MAX,
    METERING_STALL_MS,
    WORKER_DRAIN_MS,
    WORKER_DRAIN_MS_MAX,
)

URL, KEY = "THREADLOG_URL", "THREADLOG_KEY"
_COLLECTOR = "THREADLOG_TRACES__ENDPOINT"
_TOKEN = re.compile(r"[\x21-\x7e]{1,512}")
_EXAMPLE = "for example https://threadlog.example.com or http://127.0.0.1:8080"


class Section(BaseModel):
    """Base of every section: immutable, and a name that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SettingError(UsageError):
    """One variable is unknown, or its value does not fit."""

    code = "setting"

    def __init__(self, variable: str, message: str) -> None:
        super().__init__(message)
        self.variable = variable


class RemoteSettings(BaseModel):
    """The gateway that commands talk to, and the key that opens it. `url` None: there is none."""

    url: str | None = None
    key: SecretStr | None = Field(default=None, repr=False)
    key_file: Path | None = None

    @model_validator(mode="after")
    def _gateway_fits(self) -> Self:
        if self.url is not None:
            gateway_base(self.url, URL)
        if self.key is not None and self.key_file is not None:
            raise UsageError(both_set(KEY))
        return self

    def gateway_key(self) -> str:
        """The key of the gateway, read now if it lies in a file.

        Raises:  UsageError: there is none; says what to set. It is no key, or cannot be read.
        """
        name = KEY
        if self.key_file is not None:
            name = f"{KEY}_FILE"
            key = content_of(self.key_file, name)
        elif self.key is not None:
            key = self.key.get_secret_value()
        else:
            raise UsageError(
                f"the gateway needs a key: set {KEY}_FILE to a file that holds one, or {KEY}; "
                "its operator makes one with threadlog keys create"
            )
        if not _TOKEN.fullmatch(key):
            raise UsageError(f"{name}: this is no key: it has other characters than one has")
        return key


class TracesSettings(Section):
    """Traces. `endpoint` None: off; else an OTLP/HTTP collector, by scheme, host and port.

    `sample_ratio`: of the traces that begin here, how many are kept; 0 to 1.
    """

    endpoint: str | None = None
    sample_ratio: float = Field(default=1.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _endpoint_fits(self) -> Self:
        if self.endpoint is not None:
            _collector(self.endpoint)
        return self


class LoggingSettings(Section):
    """What services say on stderr: lines for people, or one JSON object a line for machines."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "warning"


class ToldSettings(RemoteSettings):
    """Where commands are told, and what of a process is told to whoever watches it."""

    traces: TracesSettings = TracesSettings()
    logging: LoggingSettings = LoggingSettings()


def _collector(url: str) -> None:
    """Nothing, if this is the base address of a collector.

    Raises:  UsageError: it is not; a credential has no place in it.
    """
    try:
        parts = urlsplit(url)
        is_base = bool(parts.hostname) and parts.path in ("", "/") and "@" not in parts.netloc
        _ = parts.port
    except ValueError:
        raise UsageError(f"{_COLLECTOR}: this is no address") from None
    if parts.scheme not in ("http", "https") or not is_base or "?" in url or "#" in url:
        raise UsageError(
            f"{_COLLECTOR}: scheme, host and port alone, for example http://127.0.0.1:4318; "
            "headers such as a credential go into OTEL_EXPORTER_OTLP_HEADERS"
        )


def gateway_base(url: str, name: str) -> str:
    """Scheme, host and port of a gateway; `name` is what the caller was given it by.

    Raises:  UsageError: it is no such address, or says more than that.
    """
    try:
        parts = urlsplit(url)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        parts, has_host = SplitResult("", "", "", "", ""), False
    is_text = url.isascii() and url.isprintable() and not re.search(r"[\s\\]", url)
    if parts.scheme not in ("http", "https") or not has_host or not is_text:
        raise UsageError(f"{name}: this is no address of a gateway, {_EXAMPLE}")
    if "@" in parts.netloc:
        raise UsageError(f"{name}: no name or password belongs there: the key goes into {KEY}_FILE")
    if parts.path not in ("", "/") or "?" in url or "#" in url:
        raise UsageError(f"{name}: scheme, host and port alone, {_EXAMPLE}")
    return f"{parts.scheme}://{parts.netloc}"


def is_private(base: str) -> bool:
    """Whether nobody on the way can read what is sent there: it is encrypted, or stays here."""
    parts = urlsplit(base)
    host = parts.hostname or ""
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "https" or is_here


def both_set(name: str) -> str:
    """What is wrong where a variable and its file are set."""
    return f"{name} and {name}_FILE are both set: unset one of them"


def content_of(file: Path, name: str) -> str:
    """The text of a file that holds a secret, without the space around it.

    Raises:  UsageError: it cannot be read, or holds none.
    """
    try:
        text = file.expanduser().read_text().strip()
    except OSError as error:
        raise UsageError(f"{name}: the file cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{name}: the file holds no text") from None
    if not text:
        raise UsageError(f"{name}: the file is empty")
    return text


def _words(value: object) -> object:
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


class WorkerSettings(Section):
    """A worker process. `drain_timeout_ms`: how long a stop waits for effects that have started.

    Longer than the default timeout of a call, so that a rolling restart cuts nothing off.
    """

    drain_timeout_ms: int = Field(default=WORKER_DRAIN_MS, ge=0, le=WORKER_DRAIN_MS_MAX)


class MeteringSettings(Section):
    """Metering.

    Shapes:  `tenants`: shown by name in metrics, the rest as `other`; empty: the first 50 by name.
             `stall_timeout_ms`: how long it may stand still before facts before it ends.
    """

    tenants: Annotated[
        tuple[Annotated[str, Field(pattern=r"^\S+$")], ...], NoDecode, BeforeValidator(_words)
    ] = Field(default=(), max_length=METERED_TENANTS_MAX)
    stall_timeout_ms: int = Field(default=METERING_STALL_MS, ge=1_000)
