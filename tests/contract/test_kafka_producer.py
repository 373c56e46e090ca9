"""A client that ends for good says so: whoever waits for an append hears of it, and the process."""

import asyncio
import ctypes
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Producer

from tests.helpers.kafka import make_config, until
from tests.helpers.logs import DEADLINE_S
from threadlog.adapters.kafka.headers import Encoded
from threadlog.adapters.kafka.producer import KafkaProducer
from threadlog.errors import LogUnavailableError, ThreadlogError

NOWHERE = "127.0.0.1:1"
RECORD = Encoded(b"k", [], b"v", 1)
OUT_OF_ORDER = 45
"""The broker's word for a gap in the numbers of an idempotent producer."""


def break_client(producer: Producer) -> None:
    """The client meets a fatal error, by its own means for tests.

    The handle is the first member of the client's object, behind what every object begins with.
    """
    [path] = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    library.rd_kafka_type.argtypes = [ctypes.c_void_p]
    handle = ctypes.cast(id(producer) + object.__basicsize__, ctypes.POINTER(ctypes.c_void_p))[0]
    assert library.rd_kafka_type(handle) == 0, "no producer's handle"
    assert library.rd_kafka_test_fatal_error(handle, OUT_OF_ORDER, b"made by a test") == 0


async def started(told: list[ThreadlogError]) -> KafkaProducer:
    producer = KafkaProducer(make_config(NOWHERE), told.append)
    producer.start()
    return producer


async def test_a_fatal_error_is_told_once_and_nobody_waits_for_ever() -> None:
    """The client raises it out of `poll`: `error_cb` is not called."""
    told: list[ThreadlogError] = []
    producer = await started(told)
    waiting = [asyncio.create_task(producer.append("t", 0, [RECORD] * n)) for n in (1, 3)]
    await asyncio.sleep(0)
    assert producer._producer is not None
    break_client(producer._producer)
    for append in waiting:
        with pytest.raises(LogUnavailableError, match="made by a test"):
            await asyncio.wait_for(append, DEADLINE_S)
    with pytest.raises(LogUnavailableError, match="made by a test"):
        await asyncio.wait_for(producer.append("t", 0, [RECORD]), 1)
    await producer.close()
    assert [type(error) for error in told] == [LogUnavailableError]
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(told[0])


async def test_whatever_else_ends_the_thread_is_told_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[ThreadlogError] = []
    producer = await started(told)
    waiting = asyncio.create_task(producer.append("t", 0, [RECORD]))
    await asyncio.sleep(0)

    class Broken:
        def poll(self, _: float) -> None:
            raise MemoryError("none left")

    thread = producer._thread
    assert thread is not None
    monkeypatch.setattr(producer, "_producer", Broken())
    producer._serve()
    with pytest.raises(LogUnavailableError, match="none left"):
        await asyncio.wait_for(waiting, DEADLINE_S)
    await until(lambda: len(told) == 1)
    monkeypatch.undo()
    assert producer._producer is not None
    producer._producer.purge()
    await producer.close()
    assert not thread.is_alive()
    assert len(told) == 1
