"""Spans on their way to a collector that takes nothing: nobody waits, and a stop is bounded."""

import logging
import socket
import time

import pytest

from threadlog.events.trace import TraceParent
from threadlog.limits import TRACE_QUEUE_SPANS_MAX, TRACE_SEND_MS
from threadlog.telemetry.spans import Ended, Spans

AT = TraceParent("a" * 32, "b" * 16, is_sampled=True)
SPAN = Ended("chat", AT, None, 1_800_000_000_000, 1_800_000_000_500, {})


def test_F103_nobody_waits_for_a_collector_that_never_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        spans = Spans(f"http://127.0.0.1:{silent.getsockname()[1]}", "planner", "1")
        began_s = time.perf_counter()
        with caplog.at_level(logging.WARNING):
            for _ in range(2 * TRACE_QUEUE_SPANS_MAX):
                spans.add(SPAN)
        added_s = time.perf_counter() - began_s
        spans.close()
        closed_s = time.perf_counter() - began_s - added_s
    assert added_s < 2
    assert closed_s < TRACE_SEND_MS / 1_000 + 1
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_F103_a_span_that_is_not_sampled_is_sent_nowhere() -> None:
    spans = Spans("http://127.0.0.1:9", "planner", "1")
    spans.add(Ended("chat", AT._replace(is_sampled=False), None, 1, 2, {}))
    assert not spans._queue._batch_processor._queue
    spans.close()
