"""What stands in addresses and headers: ids, cursors, receipts, page tokens, keys of requests.

Each has one closed alphabet and one spelling. An id that can be none is answered as one that is
absent, before any store is asked.
"""

import base64
import binascii
import hashlib
import hmac
import re
import struct
from typing import Annotated

import orjson
from fastapi import Request
from pydantic import BeforeValidator, Field

from threadlog.commands.inputs import INTENT_BYTES
from threadlog.commands.requests import Appended
from threadlog.errors import CursorInvalidError, NotFoundError, RejectedError
from threadlog.ids import (
    EventId,
    Position,
    TenantId,
    ThreadId,
    draw,
    is_uuid,
    uuid_text,
)
from threadlog.limits import IDEMPOTENCY_KEY_CHARS_MAX
from threadlog.ports.views import ThreadPlace
from threadlog.telemetry.scope import learn

_DIGITS = re.compile(r"0|[1-9][0-9]{0,15}")
_RECEIPT = re.compile(r"[A-Za-z0-9_-]{44}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,600}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_QUOTED = re.compile(r'"(?P<key>(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BARE = re.compile(r"[\x21\x23-\x7e][\x21-\x7e]*")
_PLACE = struct.Struct(f">q16s{INTENT_BYTES}s")
_SIGNATURE_BYTES = 16
_POSITION_MAX = 2**63 - 1


def _number(text: object) -> int:
    """Decimal digits of one spelling: no sign, no space, no leading zero, no foreign digits."""
    if isinstance(text, str) and _DIGITS.fullmatch(text):
        return int(text)
    if isinstance(text, int):
        return text
    raise ValueError("not decimal digits")


def _cursor(text: object) -> int:
    return -1 if text == "-1" else _number(text)


Number = Annotated[int, BeforeValidator(_number)]
Cursor = Annotated[int, BeforeValidator(_cursor), Field(ge=-1)]
"""A seq, or -1 for the place before the first event."""


def cursor_of(text: str, name: str) -> int:
    """The cursor that a header holds.

    Raises:  CursorInvalidError
    """
    if text != "-1" and not _DIGITS.fullmatch(text):
        raise CursorInvalidError(f"{name}: a seq, in decimal digits")
    return int(text)


def thread_id(text: str) -> ThreadId:
    """The id of a thread.

    Raises:  NotFoundError: no thread can have it.
    """
    if not is_uuid(text):
        raise NotFoundError("no thread")
    learn(thread=ThreadId(text))
    return ThreadId(text)


def sha256_of(text: str) -> str:
    """The hash of a blob.

    Raises:  NotFoundError: no blob can have it.
    """
    if not _SHA256.fullmatch(text):
        raise NotFoundError("no blob")
    return text


def seq_of(text: str) -> int:
    """A seq in a path.

    Raises:  NotFoundError: no event can have it.
    """
    if not _DIGITS.fullmatch(text):
        raise NotFoundError("no event")
    return int(text)


def receipt_text(done: Appended) -> str:
    """The receipt of what was appended: opaque to clients."""
    event_id = bytes.fromhex(done.event_id.replace("-", ""))
    packed = _PLACE.pack(done.position, event_id, done.intent)
    return base64.urlsafe_b64encode(packed).decode()


def receipt_of(text: str) -> tuple[Position, EventId, bytes]:
    """Position, id and intent in a receipt. Inverse of `receipt_text`.

    Raises:  CursorInvalidError
    """
    if not _RECEIPT.fullmatch(text):
        raise CursorInvalidError("receipt: give one that an answer held, as it was")
    position, event_id, intent = _PLACE.unpack(base64.urlsafe_b64decode(text))
    if position < 0:
        raise CursorInvalidError("receipt: give one that an answer held, as it was")
    return Position(position), EventId(uuid_text(event_id)), intent


def page_token(place: ThreadPlace, tenant: TenantId, signing_key: bytes) -> str:
    """The token of the page behind this place, for this tenant alone."""
    data = orjson.dumps([place.updated_at, place.position, place.thread_id])
    signed = _signature(data, tenant, signing_key) + data
    return _spelled(signed)


def _spelled(signed: bytes) -> str:
    """The one spelling of a page token."""
    return base64.urlsafe_b64encode(signed).rstrip(b"=").decode()


def place_of(token: str, tenant: TenantId, signing_key: bytes) -> ThreadPlace:
    """The place in a page token. Inverse of `page_token`.

    Raises:  CursorInvalidError: it is none of ours, or another tenant's.
    """
    wrong = CursorInvalidError("page: give the `next` of an answer, as it was")
    if not _TOKEN.fullmatch(token):
        raise wrong
    try:
        signed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except binascii.Error:
        raise wrong from None
    signature, data = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
    if _spelled(signed) != token or not hmac.compare_digest(
        signature, _signature(data, tenant, signing_key)
    ):
        raise wrong
    updated_at, position, thread = orjson.loads(data)
    return ThreadPlace(updated_at, Position(position), ThreadId(thread))


def _signature(data: bytes, tenant: TenantId, signing_key: bytes) -> bytes:
    return hmac.digest(signing_key, tenant.encode() + b"\0" + data, hashlib.sha256)[
        :_SIGNATURE_BYTES
    ]


def idempotency_key(request: Request) -> str:
    """The key of the request, quoted or bare; one is drawn where there is none.

    Raises:  RejectedError: it is no key, or there are several.
    """
    given = [v for k, v in request.headers.raw if k == b"idempotency-key"]
    if not given:
        return draw()
    text = given[0].decode("latin-1")
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        key = re.sub(r"\\(.)", r"\1", quoted["key"])
    else:
        key = text if _BARE.fullmatch(text) else ""
    if len(given) > 1 or not 0 < len(key) <= IDEMPOTENCY_KEY_CHARS_MAX:
        raise RejectedError(
            f"Idempotency-Key: one key of 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII "
            "characters, quoted or bare"
        )
    return key
