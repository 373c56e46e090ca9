"""A client's statistics become a few figures, and whatever else it says harms nothing."""

import json

import pytest

from threadlog.adapters.kafka.statistics import EVERY_MS, ClientStatistics, Figures
from threadlog.clock import ManualClock


def said(name: str, rtt_us: int, messages: int, fetched: int = 0) -> str:
    broker = {"rtt": {"p99": rtt_us}, "int_latency": {"p99": 500_000}, "throttle": {"p99": 250}}
    partitions = {"0": {"fetchq_cnt": fetched}, "-1": {"fetchq_cnt": -1}}
    return json.dumps(
        {
            "name": name,
            "msg_cnt": messages,
            "brokers": {"a": broker, "b": {}},
            "topics": {"t": {"partitions": partitions}},
            "cgrp": {"rebalance_cnt": 2},
        }
    )


def test_of_several_clients_of_a_kind_the_slowest_and_the_sum_are_told() -> None:
    told = ClientStatistics(ManualClock())
    told.tell("reader", said("one", 2_000, 3, 4))
    told.tell("reader", said("two", 90_000, 1))
    told.tell("reader", said("one", 1_000, 3, 5))
    told.tell("producer", said("three", 7_000, 0))
    assert told.known() == {
        "reader": Figures(0.09, 0.5, 0.25, messages=9, rebalances=4),
        "producer": Figures(0.007, 0.5, 0.25, messages=0, rebalances=2),
    }


def test_a_client_that_is_gone_is_forgotten() -> None:
    clock = ManualClock()
    told = ClientStatistics(clock)
    told.tell("reader", said("one", 2_000, 3))
    clock.advance(3 * EVERY_MS)
    assert "reader" in told.known()
    clock.advance(1)
    assert told.known() == {}


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"name":"x","brokers":[]}', "\x00"])
def test_what_cannot_be_read_is_as_if_it_was_not_said(text: str) -> None:
    told = ClientStatistics(ManualClock())
    told.tell("group", text)
    assert told.known() == {}
