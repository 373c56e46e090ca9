"""Settings: the only reader of the environment.

Every variable is `THREADLOG_…`, nested with `__`; one that is not known here is an error, since a
misspelt one would otherwise be silently without effect. `OPENAI_API_KEY`, `OPENAI_BASE_URL` and
`OPENAI_MODEL` are read too, as their SDK does.
"""

import difflib
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from threadlog.errors import UsageError

_PREFIX = "THREADLOG_"


class LogSettings(BaseModel):
    """The embedded log. `file` None: `threadlog.db` in the data folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Path | None = None


class ToolRunnerSettings(BaseModel):
    """The tool-runner. `workspaces` None: `workspaces` in the data folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspaces: Path | None = None


class ScriptedSettings(BaseModel):
    """The scripted model. `script` None: there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    script: Path | None = None


class OpenAISettings(BaseSettings):
    """The OpenAI-compatible provider, by the names that its SDK knows."""

    model_config = SettingsConfigDict(env_prefix="OPENAI_", frozen=True, extra="ignore")

    api_key: str | None = Field(default=None, repr=False)
    base_url: str | None = None
    model: str | None = None


class Settings(BaseSettings):
    """All settings, each with the default that a person on a laptop wants.

    Shapes:  `data_dir` None: `$XDG_DATA_HOME/threadlog`, for root `/var/lib/threadlog`. `model`:
             `provider/name`, or a name of the only provider. `prices`: a file with a price list.
             `fault`: a crash point of `faults.POINTS`, for tests: `name` or `name:visit`.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    data_dir: Path | None = None
    log: LogSettings = LogSettings()
    tool_runner: ToolRunnerSettings = ToolRunnerSettings()
    scripted: ScriptedSettings = ScriptedSettings()
    sandbox: Literal["bubblewrap", "off"] = "bubblewrap"
    model: str | None = None
    prices: Path | None = None
    fault: str | None = None

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
            raise UsageError(f"unknown setting {name}{hint}")
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = _PREFIX + "__".join(str(part) for part in first["loc"]).upper()
        raise UsageError(f"{name}: {first['msg']}") from error


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
