"""What `--json` prints: one document a command. The schemas under `schemas/cli/` are these types.

A member is added freely and never changes its meaning; a reader ignores members it does not know.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from threadlog.api.problems import problem_of
from threadlog.bootstrap.doctor.report import Group, Told
from threadlog.cli.plain import json_plain
from threadlog.errors import ModelError, ThreadlogError
from threadlog.events.content import Usage
from threadlog.ports.usage import UsageTotals
from threadlog.queries.reading import TurnResult
from threadlog.thread.state import FOLD_VERSION
from threadlog.version import VERSION


class Document(BaseModel):
    """Base of every document."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    def json_line(self) -> str:
        """One line of JSON that is safe to show."""
        return json_plain(self.model_dump_json())


class Amounts(Document):
    """Tokens by kind; `cost_micros` in millionths of a US dollar, null when no price is known."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost_micros: int | None

    @classmethod
    def of(cls, usage: Usage | UsageTotals) -> "Amounts":
        """The amounts of an event or a view."""
        return cls.model_validate({name: getattr(usage, name) for name in cls.model_fields})


class RunDocument(Document):
    """`run --json`: the turn that took the message. `usage` null: no step reported any."""

    thread_id: str
    turn_id: str
    seq: int
    verdict: str
    cause: str | None
    answer: str
    steps: int
    usage: Amounts | None

    @classmethod
    def of(cls, result: TurnResult) -> "RunDocument":
        """The document of a finished turn."""
        usage = None if result.usage is None else Amounts.of(result.usage)
        members = {name: getattr(result, name) for name in cls.model_fields}
        return cls.model_validate(members | {"usage": usage})


Level = Literal["ok", "warn", "fail"]


class FindingDocument(Document):
    """One result of a check. `fix` is empty when `level` is `ok`; `docs`: where to read more."""

    level: Level
    group: Group
    check: str
    evidence: str
    fix: str
    docs: str


class DoctorDocument(Document):
    """`doctor --json`; `worst` sets the exit code: only `fail` is not 0."""

    worst: Level
    findings: tuple[FindingDocument, ...]

    @classmethod
    def of(cls, told: Iterable[Told]) -> "DoctorDocument":
        """The document of all findings."""
        entries = tuple(
            FindingDocument(
                level=each.finding.level,
                group=each.group,
                check=each.finding.check,
                evidence=each.finding.evidence,
                fix=each.finding.fix,
                docs=each.docs,
            )
            for each in told
        )
        levels = {entry.level for entry in entries}
        worst: Level = "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"
        return cls(worst=worst, findings=entries)


class VersionDocument(Document):
    """`version --json`. `fold`: names the rules that judge events."""

    version: str
    fold: str

    @classmethod
    def current(cls) -> "VersionDocument":
        """The document of this program."""
        return cls(version=VERSION, fold=FOLD_VERSION)


class ProblemDocument(Document):
    """What every command with `--json` prints instead when it fails.

    `retryable`: the same command may work later.
    """

    code: str
    title: str
    detail: str
    retryable: bool

    @classmethod
    def of(cls, error: ThreadlogError) -> "ProblemDocument":
        """The document of an error."""
        body = problem_of(error)
        is_retryable = error.retryable if isinstance(error, ModelError) else body.retryable
        return cls(code=body.code, title=body.title, detail=body.detail, retryable=is_retryable)


class SchemaLine(Document):
    """A schema that can be asked for."""

    name: str
    text: str


class SchemaListDocument(Document):
    """All of them."""

    schemas: tuple[SchemaLine, ...]
