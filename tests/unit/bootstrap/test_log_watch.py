"""A log that was replaced ends the process; one that is away or not known for a moment does not."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from threadlog.bootstrap import log_watch
from threadlog.bootstrap.log_watch import LogWatch
from threadlog.errors import CorruptError, LogUnavailableError, RefusedError
from threadlog.ports.log import LogIdentity

OURS = LogIdentity("cluster", "t.events", "topic", 4)
NEW = replace(OURS, topic_id="another")
GROWN = replace(OURS, partitions=6)
GONE = RefusedError("there is no such topic")
AWAY = LogUnavailableError("nobody answers")
Answer = LogIdentity | Exception


class Topics:
    """Answers what it was given, then that all is well."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.all_told = asyncio.Event()

    async def identity(self) -> LogIdentity:
        if not self.answers:
            self.all_told.set()
            return OURS
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_watch, "LOOK_S", 0)


@pytest.mark.parametrize(
    "answers", [[NEW] * 3, [GROWN] * 3, [GONE] * 3, [NEW, AWAY, GONE, AWAY, NEW]]
)
async def test_a_log_that_is_another_one_three_times_ends_the_process(
    answers: list[Answer],
) -> None:
    async with asyncio.timeout(10):
        error = await LogWatch(Topics(answers), OURS).failed()
    assert isinstance(error, CorruptError)
    assert "t.events" in str(error)


@pytest.mark.parametrize("answers", [[AWAY] * 9, [GONE, GONE, OURS] * 3, [NEW, NEW]])
async def test_a_log_that_is_away_or_back_again_does_not(answers: list[Answer]) -> None:
    topics = Topics(answers)
    watching = asyncio.create_task(LogWatch(topics, OURS).failed())
    async with asyncio.timeout(10):
        await topics.all_told.wait()
    assert not watching.done()
    watching.cancel()
