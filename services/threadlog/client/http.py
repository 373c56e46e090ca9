"""Commands over HTTP, through the socket of the runtime that holds the file."""

from pathlib import Path

import httpx2
from pydantic import ValidationError

from threadlog.api.problems import error_of
from threadlog.api.threads import (
    AcceptedBody,
    CancelBody,
    InfoBody,
    MessageBody,
    ProblemBody,
    SettingsBody,
    ThreadBody,
    Wire,
)
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.errors import LockedError, TransientError
from threadlog.ids import CallId, Position, Seq, ThreadId, TurnId

_TIMEOUT_S = 30.0


class HttpCommands:
    """Implements `client.interface.CommandPort`."""

    def __init__(self, socket: Path) -> None:
        transport = httpx2.AsyncHTTPTransport(uds=str(socket))
        self._http = httpx2.AsyncClient(
            transport=transport, base_url="http://threadlog", timeout=_TIMEOUT_S
        )

    async def create_thread(self, new: NewThread, *, key: str) -> Accepted:
        """A thread exists, with its settings and, where there is one, its first message."""
        message = None if new.message is None else _message(new.message)
        body = ThreadBody(settings=_settings(new.settings), title=new.title, message=message)
        return await self._send("POST", "/v1/threads", body, key)

    async def configure(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Accepted:
        """The settings are in force from the next step on."""
        return await self._send("PATCH", f"/v1/threads/{thread}", _settings(settings), key)

    async def send_message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Accepted:
        """The message is in the inbox."""
        return await self._send("POST", f"/v1/threads/{thread}/messages", _message(message), key)

    async def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Accepted:
        """The open turn, or one call of it, was told to stop."""
        body = CancelBody(turn_id=turn, call_id=call)
        return await self._send("POST", f"/v1/threads/{thread}/cancel", body, key)

    async def models(self) -> dict[str, str]:
        """A hash of the configuration of each provider that the runtime can ask.

        Raises:  LockedError: it cannot be reached.
        """
        try:
            response = await self._http.get("/v1/info")
            return dict(InfoBody.model_validate_json(response.content).models)
        except (httpx2.HTTPError, ValidationError) as error:
            raise LockedError("the runtime that holds the file does not answer") from error

    async def close(self) -> None:
        """No connection is open."""
        await self._http.aclose()

    async def _send(self, method: str, path: str, body: Wire, key: str) -> Accepted:
        """The answer of the runtime.

        Raises:  LockedError: it cannot be reached, and whether it took the request is unknown.
        """
        try:
            response = await self._http.request(
                method,
                path,
                content=body.model_dump_json(exclude_none=True),
                headers={"Idempotency-Key": key, "Content-Type": "application/json"},
            )
        except httpx2.HTTPError as error:
            raise LockedError("the runtime that holds the file does not answer") from error
        try:
            if response.is_success:
                done = AcceptedBody.model_validate_json(response.content)
                return Accepted(
                    done.thread_id, done.event_id, Position(int(done.receipt)), Seq(done.seq)
                )
            problem = ProblemBody.model_validate_json(response.content)
        except (ValidationError, ValueError) as error:
            raise TransientError(f"the runtime answered {response.status_code} oddly") from error
        raise error_of(problem)


def _settings(settings: ThreadSettings) -> SettingsBody:
    return SettingsBody(
        model=settings.model,
        thinking=settings.thinking,
        system_prompt=settings.system_prompt,
        tools=settings.tools,
        limits=settings.limits,
        workspace=settings.workspace,
    )


def _message(message: NewMessage) -> MessageBody:
    return MessageBody(content=message.content, delivery=message.delivery)
