"""The bad-input corpus of RELIABILITY (e), as far as it concerns HTTP: typed cases of data files.

One file an id, under `tests/fault/corpus/`: `json` (bodies), `ids` (request targets), `credentials`
(headers and queries). A file has an id, a reason and its cases; a member that is not declared here
is an error. What is large, binary or made is written as pieces that are joined here:

- a text, taken as UTF-8;
- `{"base64": text}`, bytes that are no text;
- `{"repeat": [text, n]}`, and `{"count": [text, n]}` where `{n}` in the text is the ordinal;
- `{"jwt": [header, claims, key]}`, signed with HMAC-SHA256 by that key; null: not signed.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

FOLDER = Path(__file__).parents[1] / "fault" / "corpus"
THREAD, UPPER, HEX = "<thread>", "<THREAD>", "<hex>"
"""Stand in a target for the id of a thread that exists: as it is, in upper case, unhyphenated."""
KEY = "<key>"
"""Stands in a header or query for a key that is good."""

Judge = Literal["parser", "schema", "server", "nobody"]
"""Who refuses a body: `strict_json` alone, the schema behind it, the server before both, no one."""


@dataclass(frozen=True, slots=True)
class JsonCase:
    """A request with a body. Any of `status` is right.

    Shapes:  `code` is the problem's; None: it differs with the status, or there is no problem.
             `content_type` None: the request names none.
    """

    id: str
    name: str
    why: str
    method: str
    target: str
    content_type: str | None
    body: bytes
    by: Judge
    status: frozenset[int]
    code: str | None


@dataclass(frozen=True, slots=True)
class TargetCase:
    """A request target, to be sent as it is: no client may normalise it."""

    id: str
    name: str
    why: str
    template: str
    status: frozenset[int]

    def target(self, thread: str) -> str:
        """The target, where `thread` exists for the one who asks."""
        made = self.template.replace(THREAD, thread).replace(UPPER, thread.upper())
        return made.replace(HEX, thread.replace("-", ""))


@dataclass(frozen=True, slots=True)
class CredentialCase:
    """Headers and a query that name nobody."""

    id: str
    name: str
    why: str
    templates: tuple[tuple[str, str], ...]
    query_template: str
    status: frozenset[int]
    code: str

    def headers(self, key: str) -> list[tuple[str, str]]:
        """The headers, in this order, where `key` is good."""
        return [(name, value.replace(KEY, key)) for name, value in self.templates]

    def query(self, key: str) -> str:
        """The query without its question mark, where `key` is good; empty: none."""
        return self.query_template.replace(KEY, key)


def json_cases() -> list[JsonCase]:
    """Every case of `json`."""
    return [
        JsonCase(
            id=file.id,
            name=case.name,
            why=file.why,
            method=case.route.partition(" ")[0],
            target=case.route.partition(" ")[2],
            content_type=case.content_type,
            body=_joined(case.body),
            by=case.by,
            status=frozenset(case.status),
            code=case.code,
        )
        for file in _files("json", _File[_JsonEntry])
        for case in file.cases
    ]


def target_cases() -> list[TargetCase]:
    """Every case of `ids`."""
    return [
        TargetCase(
            id=file.id,
            name=case.name,
            why=file.why,
            template=_joined(case.target).decode("ascii"),
            status=frozenset(case.status),
        )
        for file in _files("ids", _File[_TargetEntry])
        for case in file.cases
    ]


def credential_cases() -> list[CredentialCase]:
    """Every case of `credentials`."""
    return [
        CredentialCase(
            id=file.id,
            name=case.name,
            why=file.why,
            templates=tuple((name, _joined(value).decode("ascii")) for name, value in case.headers),
            query_template=case.query,
            status=frozenset(case.status),
            code=case.code,
        )
        for file in _files("credentials", _File[_CredentialEntry])
        for case in file.cases
    ]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Base64(_Closed):
    base64: str


class _Repeat(_Closed):
    repeat: tuple[str, int]


class _Count(_Closed):
    count: tuple[str, int]


class _Jwt(_Closed):
    jwt: tuple[str, str, str | None]


_Piece = str | _Base64 | _Repeat | _Count | _Jwt


class _Entry(_Closed):
    name: str
    status: list[int] = Field(min_length=1)


class _JsonEntry(_Entry):
    route: str = Field(pattern="^(GET|POST|PATCH) /")
    content_type: str | None
    body: list[_Piece]
    by: Judge
    code: str | None


class _TargetEntry(_Entry):
    target: list[_Piece]


class _CredentialEntry(_Entry):
    headers: list[tuple[str, list[_Piece]]]
    query: str
    code: str


_E = TypeVar("_E", bound=_Entry)


class _File(_Closed, Generic[_E]):
    id: str
    why: str
    cases: list[_E] = Field(min_length=1)


def _files(folder: str, kind: type[_File[_E]]) -> list[_File[_E]]:
    found = []
    for path in sorted((FOLDER / folder).iterdir()):
        file = kind.model_validate_json(path.read_bytes())
        assert path.name == f"{file.id}.json", path
        found.append(file)
    return found


def _joined(pieces: Sequence[_Piece]) -> bytes:
    return b"".join(map(_bytes_of, pieces))


def _bytes_of(piece: _Piece) -> bytes:
    match piece:
        case str():
            return piece.encode()
        case _Base64():
            return base64.b64decode(piece.base64, validate=True)
        case _Repeat(repeat=(text, times)):
            return text.encode() * times
        case _Count(count=(text, times)):
            return "".join(text.replace("{n}", str(n)) for n in range(times)).encode()
        case _Jwt(jwt=(header, claims, key)):
            return _token(header, claims, key)


def _token(header: str, claims: str, key: str | None) -> bytes:
    signed = b".".join(map(_url_safe, (header.encode(), claims.encode())))
    if key is None:
        return signed + b"."
    digest = hmac.new(key.encode(), signed, hashlib.sha256).digest()
    return signed + b"." + _url_safe(digest)


def _url_safe(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
