"""Checks that run side by side, each apart: one that breaks, hangs or is refused is a finding.

Guarantees: findings come in the order of the checks; each check has `DOCTOR_CHECK_MS`, all of them
run at once, so the whole takes hardly longer; no secret of the settings stands in a finding.
"""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, get_args

from threadlog.errors import ThreadlogError, TransientError, UsageError
from threadlog.limits import DOCTOR_CHECK_MS, DOCTOR_SLOW_MS
from threadlog.ports.tools import Finding

T = TypeVar("T")
Group = Literal[
    "config",
    "disk",
    "log",
    "groups",
    "redis",
    "views",
    "blobs",
    "sandbox",
    "models",
    "keys",
    "clock",
    "gateway",
    "terminal",
]
GROUPS: tuple[Group, ...] = get_args(Group)
"""In the order in which they are shown."""
PAGE = "docs/doctor.md"
_SECRET_CHARS_MIN = 4
_USER_INFO = re.compile(r"(?<=//)[^/\s@]+(?=@)")


@dataclass(frozen=True, slots=True)
class Told:
    """A finding and where it belongs."""

    group: Group
    finding: Finding

    @property
    def docs(self) -> str:
        """Where to read about it."""
        return f"{PAGE}#{self.group}"


@dataclass(frozen=True, slots=True)
class Check:
    """One question. `advice`: what to do about an error that says it by its kind, not its text."""

    group: Group
    name: str
    run: Callable[[], Awaitable[Sequence[Finding]]]
    advice: Callable[[BaseException], str | None] = lambda _: None


class UnmetError(TransientError):
    """What a check needs is not there, which another check tells."""

    code = "unmet"


class Once(Generic[T]):
    """One answer for all who ask; an error is everybody's, and whoever is not first hears `why`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], why: str) -> None:
        self._make = make
        self._why = why
        self._task: asyncio.Task[T] | None = None

    async def __call__(self, *, is_owner: bool = False) -> T:
        """The answer. `is_owner`: the one check that tells what is wrong with it."""
        if self._task is None:
            self._task = asyncio.create_task(self._make())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.shield(self._task)
        except ThreadlogError as error:
            if is_owner:
                raise
            raise UnmetError(self._why) from error


async def off_loop(call: Callable[[], T]) -> T:
    """What `call` returns, on a thread that the end of the program does not wait for."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # a T when there is no error

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001  # goes to whoever waits
            failure = error
        try:
            loop.call_soon_threadsafe(tell, result, failure)
        except RuntimeError:
            return  # nobody waits any more

    threading.Thread(target=run, name="doctor", daemon=True).start()
    return await answer


async def examine(
    checks: Sequence[Check],
    secrets: Collection[str] = (),
    on_slow: Callable[[str], None] = lambda _: None,
) -> tuple[Told, ...]:
    """Every finding, in the order of the checks. `on_slow` is told of a check that takes a while.

    Effects: the checks' own. Never raises for what a check meets.
    """
    found = await asyncio.gather(*(_told(check, on_slow) for check in checks))
    return tuple(_without(told, secrets) for some in found for told in some)


async def _told(check: Check, on_slow: Callable[[str], None]) -> list[Told]:
    loop = asyncio.get_running_loop()
    slow = loop.call_later(DOCTOR_SLOW_MS / 1_000, on_slow, f"{check.group}: {check.name}")
    try:
        async with asyncio.timeout(DOCTOR_CHECK_MS / 1_000):
            findings = await check.run()
    except TimeoutError:
        evidence = f"no answer in {DOCTOR_CHECK_MS // 1_000} s"
        findings = [Finding("fail", check.name, evidence, "see what hangs, and run it again")]
    except UnmetError as error:
        findings = [Finding("warn", check.name, f"not checked: {error}", "mend that first")]
    except (ThreadlogError, OSError) as error:
        findings = [Finding("fail", check.name, str(error), check.advice(error) or _fix(error))]
    except Exception as error:  # noqa: BLE001  # one broken check must not hide the others
        evidence = f"this check broke: {type(error).__name__}"
        findings = [Finding("fail", check.name, evidence, "report it, with the version")]
    finally:
        slow.cancel()
    return [Told(check.group, finding) for finding in findings]


def _fix(error: Exception) -> str:
    match error:
        case UsageError():
            return "correct this setting: docs/settings.md has them all"
        case _:
            return "do what the message says, and run it again"


def _without(told: Told, secrets: Collection[str]) -> Told:
    """The same without a secret, wherever it came from."""

    def clean(text: str) -> str:
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SECRET_CHARS_MIN:
                text = text.replace(secret, "***")
        return _USER_INFO.sub("***", text)

    finding = told.finding
    return replace(
        told,
        finding=replace(finding, evidence=clean(finding.evidence), fix=clean(finding.fix)),
    )
