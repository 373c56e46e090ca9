"""Whoever waits patiently says what for: at first, and now and then."""

import logging

import pytest

from threadlog.errors import RejectedError, TransientError
from threadlog.runtime import patience
from threadlog.runtime.patience import patiently


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_RETRY_S", 0.0)


class Trying:
    """Fails so many times, then works."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self.failures:
            raise TransientError(f"no answer to try {self.tries}")
        return "done"


@pytest.mark.parametrize(
    ("failures", "said"), [(0, []), (1, [1]), (50, [1]), (51, [1, 51]), (120, [1, 51, 101])]
)
async def test_it_says_what_it_waits_for_at_first_and_every_fifty_tries(
    failures: int, said: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    trying = Trying(failures)
    with caplog.at_level(logging.WARNING, logger="threadlog.patience"):
        assert await patiently(trying) == "done"
    assert trying.tries == failures + 1
    expected = [f"waiting: no answer to try {n}" for n in said]
    assert [record.getMessage() for record in caplog.records] == expected


async def test_what_will_never_work_is_not_tried_again() -> None:
    tries: list[int] = []

    async def refused() -> None:
        tries.append(1)
        raise RejectedError("too large")

    with pytest.raises(RejectedError):
        await patiently(refused)
    assert len(tries) == 1
