"""`topics plan|apply`: what differs from the settings, and mending it."""

from collections.abc import Sequence
from typing import Literal

from threadlog.bootstrap.topics import Difference, applied, planned
from threadlog.cli.documents import Document
from threadlog.cli.failures import ExitCode
from threadlog.cli.plain import one_line
from threadlog.cli.terminal import Screen
from threadlog.settings import Settings

_DURABLE_MIN = 3


class ChangeDocument(Document):
    """One difference. `advice`: what a person must do, null where `apply` does it."""

    topic: str
    setting: str
    found: str | None
    wanted: str
    advice: str | None


class TopicsDocument(Document):
    """`topics plan --json` and `topics apply --json`: what differs, or what was done."""

    verb: Literal["plan", "apply"]
    changes: tuple[ChangeDocument, ...]


async def plan(settings: Settings, screen: Screen, *, is_json: bool) -> ExitCode:
    """The differences are on stdout."""
    changes = _documents(await planned(settings))
    if is_json:
        screen.data(TopicsDocument(verb="plan", changes=changes).json_line())
    else:
        _show(screen, changes)
        screen.note(
            "apply them: threadlog topics apply" if changes else "the topics are as they should be"
        )
    return ExitCode.DIFFERS if changes else ExitCode.OK


async def apply(settings: Settings, screen: Screen, *, is_json: bool) -> ExitCode:
    """What was done is on stdout."""
    changes = _documents(await applied(settings))
    if is_json:
        screen.data(TopicsDocument(verb="apply", changes=changes).json_line())
    else:
        _show(screen, changes)
        screen.note("done" if changes else "the topics are as they should be")
    if settings.kafka.replication < _DURABLE_MIN:
        screen.note(
            f"warning: {settings.kafka.replication} of each record; a lost disk may be a lost log: "
            f"replicate {_DURABLE_MIN} times where it matters (THREADLOG_KAFKA__REPLICATION)"
        )
    return ExitCode.OK


def _show(screen: Screen, changes: tuple[ChangeDocument, ...]) -> None:
    for change in changes:
        found = "nothing" if change.found is None else change.found
        advice = "" if change.advice is None else f"; {change.advice}"
        screen.data(
            one_line(f"{change.topic}: {change.setting}: {found} -> {change.wanted}{advice}")
        )


def _documents(changes: Sequence[Difference]) -> tuple[ChangeDocument, ...]:
    return tuple(
        ChangeDocument(
            topic=change.topic,
            setting=change.name,
            found=change.found,
            wanted=change.wanted,
            advice=change.advice,
        )
        for change in changes
    )
