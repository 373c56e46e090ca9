"""Planted faults and what `doctor` says of each: one table for the tests and for docs/doctor.md."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from threadlog.bootstrap.doctor.checks import diagnose
from threadlog.bootstrap.doctor.report import Told
from threadlog.clock import Clock, SystemClock
from threadlog.settings import (
    BlobsSettings,
    KafkaSettings,
    RedisSettings,
    Settings,
)

TABLE = Path(__file__).resolve().parents[2] / "docs/doctor.toml"
# What differs from one machine and one run to the next.
_GENERAL = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b"), "ID"),
    (re.compile(r"(?<=topic id )'\S+'"), "'ID'"),
    (re.compile(r"\b\d+ more files"), "N more files"),
    (re.compile(r"\b\d+ MiB"), "N MiB"),
    (re.compile(r"(?<=:v)\d+(?=:)"), "N"),
    (re.compile(r"\b\d+ %"), "N %"),
    (re.compile(r"\b\d+ min\b"), "N min"),
    (re.compile(r"process \d+"), "process N"),
    (re.compile(r"\(kill \d+\)"), "(kill N)"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\('127\.0\.0\.1', \d+\)"), "('127.0.0.1', PORT)"),
    (re.compile(r"(?<=is version )[\d.]+"), "5.0.0"),
    (re.compile(r"'1\+[0-9a-f]{16}'"), "'FOLD'"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A row: what is planted, and the finding that tells of it."""

    id: str
    fault: str
    group: str
    check: str
    level: str
    evidence: str
    fix: str


def faults() -> dict[str, Fault]:
    """The table, in its order."""
    rows: dict[str, dict[str, str]] = tomllib.loads(TABLE.read_text())
    return {name: Fault(name, **row) for name, row in rows.items()}


def plain(text: str, names: Mapping[str, str]) -> str:
    """The text without machine and run; `names`: what a test made, by what a reader would have."""
    for found, shown in sorted(names.items(), key=lambda item: -len(item[0])):
        text = text.replace(found, shown)
    for pattern, shown in _GENERAL:
        text = pattern.sub(shown, text)
    return text


def finds(told: Iterable[Told], name: str, names: Mapping[str, str] | None = None) -> None:
    """One of the findings is the one that the table has for this fault, word for word."""
    row = faults()[name]
    said = [
        Fault(
            name,
            row.fault,
            each.group,
            each.finding.check,
            each.finding.level,
            plain(each.finding.evidence, names or {}),
            plain(each.finding.fix, names or {}),
        )
        for each in told
    ]
    near = [one for one in said if (one.group, one.check) == (row.group, row.check)]
    assert row in said, f"{row}\nis not what was said:\n" + "\n".join(map(str, near or said))


def levels(told: Iterable[Told]) -> dict[tuple[str, str], str]:
    """The level of each finding, by group and check."""
    return {(each.group, each.finding.check): each.finding.level for each in told}


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster that exists for one test: a prefix, a blobs folder, a data folder."""

    home: Path
    bootstrap: str
    redis_url: str
    prefix: str
    partitions: int = 2

    @property
    def names(self) -> dict[str, str]:
        """What is this site's own, and what the page shows instead."""
        return {
            self.prefix: "threadlog",
            str(self.home): "/srv/threadlog",
            self.bootstrap: "kafka:9092",
            self.redis_url.rpartition("/")[0]: "redis://redis:6379",
        }

    def settings(self, **kafka: object) -> Settings:
        """Of everybody who works here."""
        told = {
            "bootstrap": self.bootstrap,
            "prefix": self.prefix,
            "partitions": self.partitions,
            "replication": 1,
        }
        (self.home / "blobs").mkdir(exist_ok=True)
        return Settings(
            data_dir=self.home / "data",
            kafka=KafkaSettings.model_validate(told | kafka),
            redis=RedisSettings(url=self.redis_url),
            blobs=BlobsSettings(url=f"file://{self.home}/blobs"),
            sandbox="off",
        )

    async def diagnosed(
        self, clock: Clock | None = None, settings: Settings | None = None
    ) -> tuple[Told, ...]:
        """What doctor finds here."""
        return await diagnose(settings or self.settings(), (), clock or SystemClock())
