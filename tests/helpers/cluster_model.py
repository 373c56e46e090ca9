"""The scripted model as a server of the test: whatever it is asked is counted outside.

It answers as `threadlog scripted-model` does, by its very code; only the requests are remembered.
"""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import orjson

from threadlog.adapters.model_api import scripted_server
from threadlog.adapters.model_api.script import ScriptPlayer, ScriptReply, parse_script

Reply = Mapping[str, object]


@dataclass(slots=True)
class Counted:
    """A model server. `asked`: the sha256 of every request that it got, in order."""

    url: str = ""
    asked: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def counted_model(replies: Sequence[Reply]) -> AsyncIterator[Counted]:
    """The server answers on this loop until the block is left."""
    counted = Counted()

    class Counting(ScriptPlayer):
        def reply(self, number: int, request: bytes) -> ScriptReply:
            counted.asked.append(hashlib.sha256(request).hexdigest())
            return super().reply(number, request)

    with patch.object(scripted_server, "ScriptPlayer", Counting):
        server = scripted_server.scripted_server(parse_script(orjson.dumps(list(replies))))
        async with server as counted.url:
            yield counted
