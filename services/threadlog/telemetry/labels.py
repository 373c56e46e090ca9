"""The closed sets of labels of models, tools, topics and clients; the others are in `table`."""

from typing import Final, Literal, get_args

from threadlog.events.step import ErrorClass
from threadlog.events.tool import Outcome as CallOutcome
from threadlog.events.turn import Verdict

TurnOutcome = Verdict
Hop = Literal["accept_to_turn", "claim_to_call", "call_to_step", "append_to_view"]
"""A message is received until a turn takes it | a claim is sent until its effect begins | the last
call of a step has ended until the next step is claimed | an event is made until a read shows it."""
AttemptOutcome = Literal["ok", "interrupted"] | ErrorClass
TokenKind = Literal["input", "output", "cache_read", "cache_write", "reasoning"]
Command = Literal["read", "write", "edit", "shell", "mcp", "none"]
"""`none`: a call that never started has run no command."""
ToolOutcome = CallOutcome
TopicSetting = Literal["partitions", "cleanup.policy", "retention.ms", "retention.bytes"]
Client = Literal["producer", "reader", "group", "members"]
"""Appends | follows partitions | shares them | is alive."""

ATTEMPT_OUTCOMES: Final = ("ok", "interrupted", *get_args(ErrorClass))
