"""What the tests that kill real processes share."""

from collections.abc import Iterator

import pytest

from tests.helpers.nursery import Nursery, nursery


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    """Starts processes of `threadlog`; none of them outlives the module."""
    with nursery() as started:
        yield started


@pytest.fixture
def servers(kafka_bootstrap: str, redis_url: str) -> tuple[str, str]:
    """Broker and Redis of this run, for clusters that bring their own prefix."""
    return kafka_bootstrap, redis_url
