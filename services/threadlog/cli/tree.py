"""The tree of causes, drawn so that a person can read it. Pure.

Each event is caused by one other, and in a turn one follows from the other: drawn to the letter the
tree would be one long stair. So an event stands under the nearest of its causes that is larger than
itself (a step under its turn, a call under its response), and where that is not the direct cause,
`<- SEQ` names the direct one. Nothing is left out and nothing is invented.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from threadlog.cli.event_text import event_text
from threadlog.cli.plain import cut
from threadlog.cli.terminal import Look, Style
from threadlog.events.tool import ToolFinished
from threadlog.events.turn import TurnFinished
from threadlog.ids import EventId
from threadlog.ports.views import StoredEvent

_SIZES = {
    "thread.created": 0,
    "thread.configured": 1,
    "message.received": 0,
    "cancel.requested": 0,
    "turn.started": 1,
    "turn.finished": 2,
    "step.started": 2,
    "step.finished": 3,
    "step.released": 3,
    "model.responded": 3,
    "model.attempt_failed": 3,
    "model.interrupted": 3,
    "tool.requested": 4,
    "tool.started": 5,
    "tool.released": 6,
    "file.changed": 6,
    "tool.finished": 6,
}
"""The larger an event, the smaller its number; one of an unknown type stands under its cause."""

_UNICODE = ("├─ ", "└─ ", "│  ", "   ")
_ASCII = ("|- ", "`- ", "|  ", "   ")
_CAUSE_CHARS = 8


@dataclass(slots=True)
class Node:
    """An event and what stands under it. `cause`: how the direct cause is named, if elsewhere."""

    stored: StoredEvent
    cause: str = ""
    under: list["Node"] = field(default_factory=list)


def arrange(events: Iterable[StoredEvent]) -> list[Node]:
    """The roots of the tree of these events, which come in log order."""
    nodes: dict[EventId, Node] = {}
    above: dict[EventId, Node | None] = {}
    roots: list[Node] = []
    for stored in events:
        event = stored.event
        node = Node(stored)
        direct = nodes.get(event.caused_by) if event.caused_by else None
        parent = _larger(event.type, direct, above)
        if event.caused_by and (parent is None or parent is not direct):
            node.cause = _named(event.caused_by, direct)
        (roots if parent is None else parent.under).append(node)
        nodes[event.event_id] = node
        above[event.event_id] = parent
    return roots


def draw(roots: Sequence[Node], look: Look, marked: EventId | None = None) -> Iterator[str]:
    """The lines of the tree; the event `marked` is pointed out."""
    arm, last_arm, bar, gap = _UNICODE if look.has_unicode else _ASCII
    stack = [(node, "", "") for node in reversed(roots)]
    while stack:
        node, lead, indent = stack.pop()
        yield _line(node, lead, look, is_marked=node.stored.event.event_id == marked)
        for place, child in enumerate(reversed(node.under)):
            is_last = place == 0
            child_lead = indent + (last_arm if is_last else arm)
            stack.append((child, child_lead, indent + (gap if is_last else bar)))


def _larger(event_type: str, cause: Node | None, above: dict[EventId, Node | None]) -> Node | None:
    """The nearest of the causes that is larger than an event of this type."""
    size = _SIZES.get(event_type)
    while cause is not None and size is not None:
        other = _SIZES.get(cause.stored.event.type)
        if other is not None and other < size:
            return cause
        cause = above[cause.stored.event.event_id]
    return cause


def _named(cause: EventId, node: Node | None) -> str:
    return cause[:_CAUSE_CHARS] if node is None else str(node.stored.seq)


def _line(node: Node, lead: str, look: Look, *, is_marked: bool) -> str:
    stored = node.stored
    head = f"{stored.seq} {stored.event.type}"
    cause = f"  <- {node.cause}" if node.cause else ""
    mark = "  <== this one" if is_marked else ""
    room = None
    if look.columns is not None:
        room = max(look.columns - len(lead) - len(head) - len(cause) - len(mark) - 2, 10)
    text = cut(event_text(stored.event), room)
    painted = look.paint(head, *_styles(stored))
    tail = look.paint(cause, "dim") + look.paint(mark, "yellow")
    return f"{look.paint(lead, 'dim')}{painted}{'  ' if text else ''}{text}{tail}"


def _styles(stored: StoredEvent) -> tuple[Style, ...]:
    match stored.event.body:
        case ToolFinished(outcome=outcome):
            return ("green",) if outcome == "ok" else ("red",)
        case TurnFinished(verdict=verdict):
            return ("bold", "green") if verdict == "completed" else ("bold", "red")
        case _:
            return ("cyan",)
