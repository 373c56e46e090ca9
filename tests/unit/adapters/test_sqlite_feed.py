"""The seam between reading the file and reading live, without a file: every order of arrival."""

import asyncio

import pytest

from tests.helpers.events import message
from threadlog.adapters.sqlite.feed import Feed, Landed, WatermarkFeed
from threadlog.errors import LogUnavailableError
from threadlog.ids import Position
from threadlog.ports.log import Record


def landed(first: int, last: int) -> Landed:
    """Records `first` to `last` as one commit added them."""
    event = message("any")
    records = tuple(Record(Position(at), event.key, event) for at in range(first, last + 1))
    return Landed(Position(last), records, payload_bytes=len(records))


def positions(records: list[Record]) -> list[int]:
    return [record.position for record in records]


async def test_what_the_file_gave_already_does_not_come_again_live() -> None:
    """The file shows a commit before the loop hears of it."""
    feed = Feed(Position(3))
    subscriber = feed.join(Position(0))
    subscriber.position = Position(5)
    assert feed.go_live(subscriber)
    feed.advance(landed(4, 5))
    feed.advance(landed(6, 7))
    assert positions(await feed.next(subscriber)) == [6, 7]


async def test_a_batch_that_was_half_read_is_cut() -> None:
    feed = Feed(Position(3))
    subscriber = feed.join(Position(5))
    assert feed.go_live(subscriber)
    feed.advance(landed(4, 7))
    assert positions(await feed.next(subscriber)) == [6, 7]


async def test_who_is_behind_the_head_may_not_be_live() -> None:
    feed = Feed(Position(3))
    subscriber = feed.join(Position(2))
    assert not feed.go_live(subscriber)
    has_live = [feed.has_live]
    subscriber.position = Position(3)
    assert feed.go_live(subscriber)
    has_live.append(feed.has_live)
    feed.leave(subscriber)
    has_live.append(feed.has_live)
    assert has_live == [False, True, False]


async def test_records_that_were_not_read_back_send_everybody_to_the_file() -> None:
    feed = Feed(Position(0))
    subscriber = feed.join(Position(0))
    assert feed.go_live(subscriber)
    feed.advance(landed(1, 2))
    feed.advance(Landed(Position(9_000), None))
    feed.advance(landed(9_001, 9_002))
    assert positions(await feed.next(subscriber)) == [1, 2]
    assert await feed.next(subscriber) == []
    assert subscriber.position == 2
    assert not feed.go_live(subscriber)


async def test_queued_commits_are_taken_together() -> None:
    feed = Feed(Position(0))
    subscriber = feed.join(Position(0))
    assert feed.go_live(subscriber)
    for at in range(1, 11):
        feed.advance(landed(at, at))
    assert positions(await feed.next(subscriber)) == list(range(1, 11))
    assert (subscriber.queued_records, subscriber.queued_bytes) == (0, 0)


async def test_a_failure_comes_behind_what_was_durable_before_it() -> None:
    feed = Feed(Position(0))
    subscriber, idle = feed.join(Position(0)), feed.join(Position(0))
    assert feed.go_live(subscriber)
    feed.advance(landed(1, 1))
    waiting = asyncio.ensure_future(feed.next(subscriber))
    feed.fail(LogUnavailableError("over"))
    feed.fail(LogUnavailableError("and over"))
    assert positions(await waiting) == [1]
    for each in (subscriber, idle):
        with pytest.raises(LogUnavailableError, match=r"^over$"):
            await feed.next(each)


async def test_a_waiter_that_gave_up_is_forgotten() -> None:
    feed = WatermarkFeed(Position(0))
    waiting = [asyncio.ensure_future(feed.wait(Position(n))) for n in (1, 1, 9)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    feed.advance(Position(3))
    await waiting[1]
    assert len(feed._waiting) == 1
    feed.fail(LogUnavailableError("over"))
    with pytest.raises(LogUnavailableError):
        await waiting[2]
    with pytest.raises(LogUnavailableError):
        await feed.wait(Position(9))
    await feed.wait(Position(3))
