"""Processes in groups of a broker, to be killed or stopped: `python -m tests.helpers.kafka_child`.

`living BOOTSTRAP PREFIX INSTANCE`  is among the living; prints `alive`, and answers each line, the
                                    name of a worker, with `gone` or `alive`.
`sharing BOOTSTRAP PREFIX INSTANCE PARTITIONS`
                                    shares the partitions; prints `KIND PARTITION …` for whatever
                                    its listener hears, and ends when its stdin closes.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from tests.helpers.kafka import make_config
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.group import KafkaGroup
from threadlog.adapters.kafka.members import KafkaMembers
from threadlog.ids import Partition, Position, WorkerId


def say(line: str) -> None:
    """One whole line, at once: nothing is lost in a buffer when the process is killed."""
    os.write(1, f"{line}\n".encode())


class Speaker:
    """Says what it hears, and has done up to position 7 of everything."""

    async def on_assigned(self, partitions: Mapping[Partition, Position | None]) -> None:
        self._say("assigned", list(partitions))

    async def on_revoked(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        self._say("revoked", partitions)
        return {partition: Position(7) for partition in partitions}

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        self._say("lost", partitions)

    def _say(self, kind: str, partitions: Sequence[Partition]) -> None:
        say(" ".join([kind, *map(str, sorted(partitions))]))


async def living(config: KafkaConfig) -> None:
    members = KafkaMembers(config)
    await members.start()
    say("alive")
    while line := await asyncio.to_thread(sys.stdin.readline):
        say("gone" if await members.is_gone(WorkerId(line.strip())) else "alive")
    await members.close()


async def sharing(config: KafkaConfig) -> None:
    group = KafkaGroup(config)
    await group.join(Speaker())
    await asyncio.to_thread(sys.stdin.read)
    await group.leave()


def main() -> None:
    role, bootstrap, prefix, instance, *more = sys.argv[1:]
    partitions = int(more[0]) if more else 1
    config = make_config(bootstrap, prefix=prefix, instance=instance, partitions=partitions)
    asyncio.run(living(config) if role == "living" else sharing(config))


if __name__ == "__main__":
    main()
