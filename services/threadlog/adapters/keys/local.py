"""The token of a runtime on a person's own machine: who can read its file is that person.

It is drawn anew at every start, so an old one opens nothing. Every other key is asked of the keys
file, if there is one.
"""

import contextlib
import hmac
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from threadlog.api.keys import SCOPES, Credential
from threadlog.errors import RefusedError
from threadlog.ids import LOCAL_TENANT
from threadlog.ports.keys import Keys

_TOKEN_BYTES = 32


class LocalKeys:
    """Implements `ports.keys.Keys`: one token for everything of the local tenant, and others."""

    def __init__(self, token: str, credential: Credential, others: Keys) -> None:
        self._token = token.encode()
        self._credential = credential
        self._others = others

    def verify(self, token: str) -> Credential | None:
        if hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._token):
            return self._credential
        return self._others.verify(token)

    def is_valid(self, credential: Credential) -> bool:
        return credential == self._credential or self._others.is_valid(credential)


def local_credential(key_id: str, actor: str) -> Credential:
    """What the bearer of the token may do: everything, as this person."""
    return Credential(key_id, LOCAL_TENANT, frozenset(SCOPES), actor, None)


@contextlib.contextmanager
def token_file(path: Path) -> Iterator[str]:
    """A token in a file that this user alone can read; both are gone when the block ends.

    Raises:  RefusedError: the file cannot be written.
    """
    token = secrets.token_hex(_TOKEN_BYTES)
    try:
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise RefusedError(f"cannot write the token file {path}: {error.strerror}") from error
    try:
        yield token
    finally:
        path.unlink(missing_ok=True)
