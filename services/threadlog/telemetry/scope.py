"""What the running task is about: the thread and the trace that its log lines are marked with.

A task that another one starts begins with that one's scope. Binding costs the same whether anybody
looks or not, and nothing but marks depends on it.
"""

from contextvars import ContextVar, Token
from dataclasses import dataclass

from threadlog.events.trace import parse_parent, turn_root
from threadlog.events.writer import NO_TRACE, Trace
from threadlog.ids import Seq, TenantId, ThreadId, TurnId


@dataclass(slots=True)
class Scope:
    """What is known; a request learns more on its way. `seq`: the head of the thread's state.

    Shapes:  `span_id`: of the span under way, where it is not the one of the turn or the request.
    """

    tenant: TenantId | None = None
    thread: ThreadId | None = None
    seq: Seq | None = None
    turn: TurnId | None = None
    span_id: str | None = None
    trace: Trace = NO_TRACE

    def marks(self) -> dict[str, str | int]:
        """What a log line is marked with, by name."""
        named = turn_root(self.turn, is_sampled=True) if self.turn else parse_parent(self.trace[0])
        found: dict[str, str | int | None] = {
            "tenant": self.tenant,
            "thread": self.thread,
            "seq": self.seq,
            "trace_id": named and named.trace_id,
            "span_id": self.span_id or (named and named.span_id),
        }
        return {name: value for name, value in found.items() if value is not None}


_NOTHING = Scope()
_PROCESS: dict[str, str] = {"service": "threadlog"}
_CURRENT: ContextVar[Scope | None] = ContextVar("threadlog_scope", default=None)


def mark_process(service: str, instance: str) -> None:
    """Every log line of this process names its service and instance from now on."""
    _PROCESS.update(service=service, instance=instance)


def bind(scope: Scope) -> Token[Scope | None]:
    """The running task is about this, until the token is given to `unbind`."""
    return _CURRENT.set(scope)


def unbind(token: Token[Scope | None]) -> None:
    """The task is about what it was about before."""
    _CURRENT.reset(token)


def learn(tenant: TenantId | None = None, thread: ThreadId | None = None) -> None:
    """The request in hand is about this tenant or thread; without one nothing is learned."""
    scope = _CURRENT.get()
    if scope is not None:
        scope.tenant = tenant or scope.tenant
        scope.thread = thread or scope.thread


def begin_span(span_id: str) -> None:
    """The running task is from now on what this span of its turn is about."""
    scope = _CURRENT.get()
    if scope is not None:
        scope.span_id = span_id


def marks() -> dict[str, str | int]:
    """What a log line of the running task is marked with."""
    return _PROCESS | (_CURRENT.get() or _NOTHING).marks()


def request_trace(_: TurnId | None = None) -> Trace:
    """What an event that the request in hand makes says of its trace."""
    return (_CURRENT.get() or _NOTHING).trace
