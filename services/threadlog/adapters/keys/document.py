"""What is in the keys file: one JSON object, and a key on each line.

::

    {"version":1,"signing_key":"<64 hex>","keys":[
    {"id":...,"tenant":...,"name":...,"scopes":[...],"sha256":...,"created_at_ms":...,...}
    ]}

Every member is there and no other: a misspelt `expires_at_ms` would be a key that never ends. No
message repeats a value of the file.
"""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from threadlog.api.keys import KeyRecord
from threadlog.errors import CorruptError
from threadlog.limits import KEYS_MAX


class KeysDocument(BaseModel):
    """The whole file. `signing_key`: 32 bytes in hexadecimal, drawn when the file was made."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True)

    version: Literal[1] = 1
    signing_key: str = Field(pattern="^[0-9a-f]{64}$", repr=False)
    keys: tuple[KeyRecord, ...] = Field(max_length=KEYS_MAX)

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        if len({record.id for record in self.keys}) < len(self.keys):
            raise ValueError("two keys have one id")
        return self

    def with_keys(self, keys: Sequence[KeyRecord]) -> Self:
        """The same file with these keys."""
        return self.model_copy(update={"keys": tuple(keys)})


def encode(document: KeysDocument) -> bytes:
    """The bytes of the file."""
    lines = ",\n".join(record.model_dump_json() for record in document.keys)
    head = f'{{"version":{document.version},"signing_key":"{document.signing_key}","keys":['
    return f"{head}\n{lines}\n]}}\n".encode()


def decode(content: bytes) -> KeysDocument:
    """What the file says.

    Raises:  CorruptError: it is no keys file of this version; names the first member that is wrong.
    """
    try:
        return KeysDocument.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        # A member that should not be there is not named either: it is a text of the file.
        place = first["loc"][:-1] if first["type"] == "extra_forbidden" else first["loc"]
        where = ".".join(str(part) for part in place) or "the whole"
        raise CorruptError(f"{where}: {first['msg']}") from None
