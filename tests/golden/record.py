"""Records the golden files: histories that every later fold must judge alike, for ever.

    python -m tests.golden.record --write

It adds what is missing and never touches a file that is there: a history that was recorded says
what the fold did then. Under another fold version the hashes of states are recorded again; seqs,
voids and verdicts must be as they were (RELIABILITY G5).
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.golden.scripts import LIVES, SCRIPTS
from tests.helpers.events import thread_id
from tests.helpers.thread_driver import Driver
from tests.helpers.threads import Story
from threadlog.events.codec import from_cloud_event, to_cloud_event
from threadlog.events.envelope import Event
from threadlog.events.turn import TurnFinished
from threadlog.thread.fold import judge
from threadlog.thread.snapshot import encode_state, state_hash
from threadlog.thread.state import FOLD_VERSION, ThreadState

HERE = Path(__file__).parent
FILES = HERE / "conversations"
STATES = HERE / "states.json"
DIGESTS = HERE / "digests.txt"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the fold made of one file. `voids`: the number of the record, from 0, and the reason."""

    records: int
    head: int
    verdicts: list[str]
    voids: dict[str, str]
    sha256: str

    @property
    def judged(self) -> tuple[int, int, list[str], dict[str, str]]:
        """All that no fold version may change."""
        return self.records, self.head, self.verdicts, self.voids


def fold_all(events: Iterable[Event]) -> Recorded:
    """What today's fold makes of the events."""
    state: ThreadState | None = None
    verdicts: list[str] = []
    voids: dict[str, str] = {}
    count = 0
    for event in events:
        judgement = judge(state or ThreadState(event.tenant_id, event.thread_id), event)
        state = judgement.state
        if judgement.void is not None:
            voids[str(count)] = judgement.void
        elif isinstance(event.body, TurnFinished):
            verdicts.append(event.body.verdict)
        count += 1
    assert state is not None
    return Recorded(count, state.head, verdicts, voids, state_hash(encode_state(state)))


def read(name: str) -> list[tuple[Event, int | None]]:
    """The events of a golden file, with the seqs that their lines name."""
    lines = (FILES / f"{name}.jsonl").read_bytes().splitlines()
    return [from_cloud_event(line) for line in lines]


def recorded() -> dict[str, Recorded]:
    """The recorded states by name."""
    files = json.loads(STATES.read_text())["files"] if STATES.exists() else {}
    return {name: Recorded(**members) for name, members in files.items()}


def recorded_version() -> str:
    """The fold version that the recorded hashes are of."""
    return str(json.loads(STATES.read_text())["fold_version"]) if STATES.exists() else ""


def digests() -> dict[str, str]:
    """The recorded digest of every file."""
    lines = DIGESTS.read_text().splitlines() if DIGESTS.exists() else []
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def told() -> Iterable[tuple[str, Story]]:
    """Every story by name, told again."""
    for n, (name, script) in enumerate(SCRIPTS.items(), start=1):
        story = Story(thread_id(n))
        story.run(*script)
        yield name, story
    for name, seed in LIVES.items():
        yield name, Driver(seed).run()


def write() -> None:
    """Effects: adds missing files, their digests and states; changes no file."""
    FILES.mkdir(exist_ok=True)
    known = digests()
    for name, story in told():
        path = FILES / f"{name}.jsonl"
        if name not in known:
            lines = (to_cloud_event(e.event, e.judgement.seq) for e in story.entries)
            path.write_bytes(b"".join(line + b"\n" for line in lines))
            known[name] = digest_of(path)
    states = {name: fold_all(event for event, _ in read(name)) for name in sorted(known)}
    for name, before in recorded().items():
        assert states[name].judged == before.judged, f"{name} is judged otherwise than it was"
        if recorded_version() == FOLD_VERSION:
            assert states[name] == before, f"{name} folds to another state than it did"
    DIGESTS.write_text("".join(f"{known[name]}  {name}\n" for name in sorted(known)))
    files = {
        name: {key: getattr(state, key) for key in Recorded.__slots__}
        for name, state in states.items()
    }
    document = {"fold_version": FOLD_VERSION, "files": files}
    STATES.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    write()
