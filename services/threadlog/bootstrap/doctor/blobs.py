"""The blob store of a cluster: it can be written, and is the one that the others write to."""

from collections.abc import Iterator, Sequence

import orjson

from threadlog.adapters.blobs.files import FileBlobs
from threadlog.bootstrap.doctor.facts import Facts
from threadlog.bootstrap.doctor.report import off_loop
from threadlog.errors import NotFoundError, RefusedError
from threadlog.events.content import BlobRef
from threadlog.ids import TenantId
from threadlog.limits import DOCTOR_BLOB_RECORDS
from threadlog.ports.tools import Finding

_MEMBERS = set(BlobRef.model_fields)


async def writable(facts: Facts) -> Sequence[Finding]:
    """Whether something can be stored there. What is written to try it has no name, and goes."""
    try:
        folder = await facts.folder(is_owner=True)
    except NotFoundError as error:
        fix = "mount the shared folder there; on one machine alone the first service makes it"
        return [Finding("warn", "folder", str(error), fix)]
    except RefusedError as error:
        fix = "chown it to the user that services run as, or correct THREADLOG_BLOBS__URL"
        return [Finding("fail", "folder", str(error).partition(";")[0], fix)]
    return [Finding("ok", "folder", f"{folder} can be written")]


async def same_folder(facts: Facts) -> Sequence[Finding]:
    """Whether what the newest records name is there."""
    folder = await facts.folder()
    inspection = (await facts.broker()).inspection
    bounds = await facts.bounds()
    records = await off_loop(
        lambda: inspection.newest(bounds.first, bounds.ends, DOCTOR_BLOB_RECORDS)
    )
    named = {
        (key.partition("/")[0], sha256) for key, value in records for sha256 in _references(value)
    }
    store = FileBlobs(folder)
    lacking = [sha for tenant, sha in named if await store.size(TenantId(tenant), sha) is None]
    if lacking:
        evidence = f"{len(lacking)} of {len(named)} blobs that the newest records name are not here"
        fix = (
            "let THREADLOG_BLOBS__URL name one folder that all services share, and bring over "
            "what they have stored elsewhere"
        )
        return [Finding("fail", "contents", evidence, fix)]
    return [Finding("ok", "contents", f"all {len(named)} that the newest records name are here")]


def _references(value: bytes) -> Iterator[str]:
    """The hashes of all blobs that a record's body names; none where it is no JSON."""
    try:
        waiting = [orjson.loads(value)]
    except orjson.JSONDecodeError:
        return
    while waiting:
        match waiting.pop():
            case dict() as found if found.keys() == _MEMBERS:
                yield str(found["sha256"])
            case dict() as found:
                waiting += found.values()
            case list() as found:
                waiting += found
            case _:
                pass
