"""What the clients of a process say of themselves: their statistics as a few figures a kind.

A client tells them every `EVERY_MS`, on its own thread, inside its own poll: they are parsed there
and never on the event loop. A client that tells nothing any more is forgotten.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from threadlog.clock import Clock, SystemClock

Kind = Literal["producer", "reader", "group", "members"]
EVERY_MS = 10_000
_FORGET_MS = 3 * EVERY_MS


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all clients of one kind: the slowest, or the sum.

    Units:   seconds, the 99th percentile of the last window; counts of records and rebalances.
    """

    rtt_s: float = 0.0
    queue_s: float = 0.0
    throttle_s: float = 0.0
    messages: int = 0
    rebalances: int = 0


class ClientStatistics:
    """The last word of every client; told on their threads, asked on any."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._told: dict[tuple[Kind, str], tuple[int, Figures]] = {}

    def settings(self, kind: Kind) -> Mapping[str, Any]:
        """What a client of this kind is configured with, so that it tells them."""
        return {
            "statistics.interval.ms": EVERY_MS,
            "stats_cb": lambda text: self.tell(kind, text),
        }

    def tell(self, kind: Kind, text: str) -> None:
        """A client's callback: what cannot be read is as if it was not said."""
        try:
            said = orjson.loads(text)
            name, figures = str(said["name"]), _figures(said)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        with self._lock:
            self._told[kind, name] = self._clock.mono_ms(), figures

    def known(self) -> Mapping[Kind, Figures]:
        """The figures of each kind that has said anything lately."""
        oldest_ms = self._clock.mono_ms() - _FORGET_MS
        found: dict[Kind, Figures] = {}
        with self._lock:
            self._told = {key: told for key, told in self._told.items() if told[0] >= oldest_ms}
            for (kind, _), (_, figures) in self._told.items():
                found[kind] = _joined(found.get(kind, Figures()), figures)
        return found


def _figures(said: Mapping[str, Any]) -> Figures:
    brokers = list(said["brokers"].values())
    fetched = sum(
        max(0, partition.get("fetchq_cnt", 0))
        for topic in said["topics"].values()
        for partition in topic["partitions"].values()
    )
    return Figures(
        rtt_s=_p99(brokers, "rtt", 1_000_000),
        queue_s=_p99(brokers, "int_latency", 1_000_000),
        throttle_s=_p99(brokers, "throttle", 1_000),
        messages=said["msg_cnt"] + fetched,
        rebalances=said.get("cgrp", {}).get("rebalance_cnt", 0),
    )


def _p99(brokers: list[Mapping[str, Any]], window: str, units_in_s: int) -> float:
    """Of the slowest broker."""
    return max((b.get(window, {}).get("p99", 0) for b in brokers), default=0) / units_in_s


def _joined(a: Figures, b: Figures) -> Figures:
    return Figures(
        rtt_s=max(a.rtt_s, b.rtt_s),
        queue_s=max(a.queue_s, b.queue_s),
        throttle_s=max(a.throttle_s, b.throttle_s),
        messages=a.messages + b.messages,
        rebalances=a.rebalances + b.rebalances,
    )
