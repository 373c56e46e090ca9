"""A program: the hash of the state after every record of some random lives, and of golden files.

Run under two values of PYTHONHASHSEED it must print the same.

    python -m tests.helpers.fold_hashes seed:7 tests/golden/conversations/01-hello.jsonl
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.helpers.thread_driver import Driver
from threadlog.events.codec import from_cloud_event
from threadlog.events.envelope import Event
from threadlog.thread.fold import judge
from threadlog.thread.snapshot import encode_state
from threadlog.thread.state import ThreadState


def hash_of(events: Iterable[Event]) -> str:
    """One hash over every verdict, and over the encoded state after every record."""
    digest, state = hashlib.sha256(), None
    for event in events:
        state = state or ThreadState(event.tenant_id, event.thread_id)
        judgement = judge(state, event)
        state = judgement.state
        digest.update(f"{judgement.seq} {judgement.void}\n".encode() + encode_state(state))
    return digest.hexdigest()


def events_of(name: str) -> list[Event]:
    """The events of a random life, `seed:7`, or of a file with one on each line."""
    if name.startswith("seed:"):
        return [entry.event for entry in Driver(int(name.removeprefix("seed:"))).run().entries]
    return [from_cloud_event(line)[0] for line in Path(name).read_bytes().splitlines()]


def main(names: list[str]) -> None:
    lines = [f"{name} {hash_of(events_of(name))}\n" for name in names]
    sys.stdout.write("".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
