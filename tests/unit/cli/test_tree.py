"""The tree of causes."""

from tests.helpers.events import event_id, make_event, thread_id
from tests.helpers.turns import finished, happened, stored, whole_turn
from threadlog.cli.terminal import Look
from threadlog.cli.tree import arrange, draw
from threadlog.events.envelope import Event, Opaque
from threadlog.events.thread import ThreadCreated
from threadlog.ids import EventId

UNICODE = """\
0 thread.created
└─ 1 thread.configured  model scripted/demo, workspace /srv/project
2 message.received  user:x: repair it
└─ 3 turn.started  turn 1
   ├─ 4 step.started  step 1, scripted/demo
   │  ├─ 5 model.responded  "I look.", 2 calls, 1,200 in, 30 out
   │  │  ├─ 6 tool.requested  ls
   │  │  │  └─ 8 tool.started
   │  │  │     └─ 12 tool.finished  ok, 1,234 ms: a.py
   │  │  └─ 7 tool.requested  make
   │  │     └─ 9 tool.started
   │  │        ├─ 10 file.changed  made a.py, 1,723 bytes
   │  │        └─ 11 tool.finished  error, exit code 2, 1,234 ms: boom
   │  └─ 13 step.finished  step 1  <- 12
   ├─ 14 step.started  step 2, scripted/demo  <- 13
   │  ├─ 15 model.responded  "Done.", 1,200 in, 30 out
   │  └─ 16 step.finished  step 2  <- 15
   └─ 17 turn.finished  completed after 2 steps  <- 16
"""
ASCII = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-"})


def drawn(look: Look, **more: EventId) -> str:
    return "".join(f"{line}\n" for line in draw(arrange(whole_turn()), look, more.get("marked")))


def opaque(name: str, cause: str) -> Event:
    event = make_event(
        ThreadCreated(), event_id=event_id(name), thread=thread_id(), caused_by=event_id(cause)
    )
    return event.model_copy(update={"type": "later.kind", "body": Opaque()})


def test_F83_the_tree_shows_what_caused_what() -> None:
    assert drawn(Look()) == UNICODE


def test_without_unicode_the_branches_are_ascii() -> None:
    assert drawn(Look(has_unicode=False)) == UNICODE.translate(ASCII)


def test_one_event_is_pointed_out() -> None:
    lines = drawn(Look(), marked=event_id("first")).splitlines()
    assert [line for line in lines if "<==" in line] == [
        "   │  │  ├─ 6 tool.requested  ls  <== this one"
    ]


def test_colours_only_where_wanted_and_columns_kept() -> None:
    assert "\x1b[" not in drawn(Look())
    assert "\x1b[32m12 tool.finished\x1b[0m" in drawn(Look(has_colour=True))
    narrow = drawn(Look(columns=50)).splitlines()
    assert max(len(line) for line in narrow) <= 50
    assert any(line.endswith("…") for line in narrow)


def test_a_window_into_a_long_thread_names_the_causes_outside() -> None:
    tail = arrange(whole_turn()[11:])
    assert [line.split("  ")[0] for line in draw(tail, Look())] == [
        "11 tool.finished",
        "12 tool.finished",
        "13 step.finished",
        "14 step.started",
        "├─ 15 model.responded",
        "└─ 16 step.finished",
        "17 turn.finished",
    ]
    assert [node.cause for node in tail] == [
        event_id("second started")[:8],
        event_id("first started")[:8],
        "12",
        "13",
        "16",
    ]


def test_an_event_of_an_unknown_type_stands_under_its_cause() -> None:
    events = stored([happened("a", ThreadCreated()), opaque("b", "a"), opaque("c", "b")])
    assert list(draw(arrange(events), Look()))[2].startswith("   └─ 2 later.kind  of a type")


def test_every_event_stands_once_even_in_a_ring() -> None:
    """Ids made by hand may name a later event as the cause."""
    events = stored([opaque("x", "y"), opaque("y", "x"), happened("z", finished("q"), "z")])
    assert len(list(draw(arrange(events), Look()))) == 3


def test_thousands_of_steps_stay_flat() -> None:
    turn = whole_turn()
    more = list(turn[:5])
    for n in range(3_000):
        body = turn[16].event.body
        assert not isinstance(body, Opaque)
        last = more[-1].event.event_id
        event = turn[16].event.model_copy(update={"event_id": event_id(f"n{n}"), "caused_by": last})
        more += stored([event])
    assert max(line.index("step") for line in draw(arrange(more), Look()) if "step" in line) < 20
