"""Commands over HTTP, to a gateway or through the socket of the runtime that holds the file.

202 says that the log has the events; the read that follows says what the fold makes of them. So a
command ends as it ends in process: with a seq, or with the same error.
"""

import asyncio

from threadlog.api.answers import (
    AcceptedBody,
    ThreadAnswer,
    VerdictBody,
)
from threadlog.api.parts import Wire
from threadlog.api.reports import (
    InfoBody,
    ModelsBody,
)
from threadlog.api.threads import (
    CallCancelBody,
    CancelBody,
)
from threadlog.client.bodies import message_body, settings_body, thread_body
from threadlog.client.connection import Connection, parsed, pause_s, thread_path
from threadlog.commands.inputs import void_error
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.errors import ConflictError, LockedError, TransientError
from threadlog.ids import NO_POSITION, CallId, ThreadId, TurnId, is_uuid
from threadlog.limits import CLIENT_RETRY_MS, CLIENT_VERDICT_MS

_ATTEMPTS_MAX = 4
"""How often an input that was judged stale is sent again, as in process."""


class HttpCommands:
    """Implements `client.interface.CommandPort`.

    Shapes:  the position of what was accepted is `NO_POSITION`: none ever leaves a gateway.
    Raises:  LockedError, through a socket: it cannot be reached, and whether it took the request is
             unknown; the same key may be used again.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create_thread(self, new: NewThread, *, key: str) -> Accepted:
        """A thread exists, with its settings and, where there is one, its first message."""
        return await self._judged("POST", "/v1/threads", thread_body(new), key)

    async def configure(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Accepted:
        """The settings are in force from the next step on."""
        return await self._judged("PATCH", thread_path(thread), settings_body(settings), key)

    async def send_message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Accepted:
        """The message is in the inbox."""
        path = thread_path(thread, "/messages")
        return await self._judged("POST", path, message_body(message), key)

    async def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Accepted:
        """The open turn, or one call of it, was told to stop. What waits in the inbox stays."""
        if call is None:
            body: Wire = CancelBody(queue="keep", turn_id=turn)
            return await self._judged("POST", thread_path(thread, "/cancel"), body, key)
        assert is_uuid(call), "calls have ids of ours"
        path = thread_path(thread, f"/calls/{call}/cancel")
        return await self._judged("POST", path, CallCancelBody(turn_id=turn), key)

    async def info(self) -> InfoBody:
        """Who answers, and for whom it takes the caller."""
        return parsed(InfoBody, await self._connection.get("/v1/info"))

    async def models(self) -> ModelsBody:
        """The models that threads may use."""
        return parsed(ModelsBody, await self._connection.get("/v1/models"))

    async def close(self) -> None:
        """No connection is open."""
        await self._connection.close()

    async def _judged(self, method: str, path: str, body: Wire, key: str) -> Accepted:
        """What was sent is in the log and was accepted.

        Raises:  ConflictError: it was void. TransientError: no verdict in time; it is in the log.
        """
        for _ in range(_ATTEMPTS_MAX):
            content = await self._connection.send(method, path, body, key)
            sent = parsed(AcceptedBody, content)
            verdict = await self._verdict(sent)
            if verdict.seq is not None:
                return Accepted(sent.thread_id, verdict.event_id, NO_POSITION, verdict.seq)
            if verdict.void != "stale":
                raise void_error(sent.thread_id, verdict.void)
        raise ConflictError("the thread takes too many inputs at once: try again")

    async def _verdict(self, sent: AcceptedBody) -> VerdictBody:
        """What the fold says of it, waited for as long as in process."""
        path, query = thread_path(sent.thread_id), {"receipt": sent.receipt}
        tries = 0
        try:
            async with asyncio.timeout(CLIENT_VERDICT_MS / 1_000):
                while True:
                    try:
                        found = parsed(ThreadAnswer, await self._connection.get(path, query))
                    except LockedError:
                        raise
                    except TransientError:
                        tries += 1
                        await asyncio.sleep(pause_s(tries, CLIENT_RETRY_MS))
                        continue
                    if found.receipt is None:
                        raise TransientError("the gateway answered oddly: no verdict")
                    return found.receipt
        except TimeoutError as error:
            raise TransientError(
                f"the input is in the log, in thread {sent.thread_id}, but no projection has "
                f"judged it in {CLIENT_VERDICT_MS / 1_000:.0f} s: do not send it again, look at "
                "the thread"
            ) from error
