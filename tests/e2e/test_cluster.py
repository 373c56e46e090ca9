"""`make cluster` and `make cluster-down`, in a copy of the clone and on ports of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy import servers
from deploy.servers import accepts
from tests.helpers.servers import reserved_port


@pytest.fixture
def clone(tmp_path: Path, kafka_bootstrap: str, redis_url: str) -> Iterator[Path]:
    """A folder with deploy/ in it, whose name needs quoting. Nothing runs there in the end.

    The shared servers are asked for so that this fails or is skipped as all tests of a broker are.
    """
    assert kafka_bootstrap
    assert redis_url
    folder = tmp_path / "two words, ünd 'more'"
    shutil.copytree(servers.ROOT / "deploy", folder / "deploy")
    shutil.copytree(servers.fetch_jars(), folder / ".kafka" / servers.fetch_jars().name)
    yield folder
    cluster(folder, "down")


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    """Ports of a broker, its controller right behind it, and a Redis."""
    with ExitStack() as stack:
        redis = stack.enter_context(reserved_port())
        broker, behind = (stack.enter_context(reserved_port()) for _ in range(2))
        while behind != broker + 1:
            broker, behind = behind, stack.enter_context(reserved_port())
        yield {"KAFKA_PORT": str(broker), "REDIS_PORT": str(redis)}


def cluster(folder: Path, command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.cluster", command],
        cwd=folder,
        env={**os.environ, **env},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.timeout(120)
def test_a_cluster_starts_once_and_stops_with_its_data_kept(
    clone: Path, ports: dict[str, str]
) -> None:
    broker, redis = int(ports["KAFKA_PORT"]), int(ports["REDIS_PORT"])
    first = cluster(clone, "up", **ports)
    assert f"kafka listens on 127.0.0.1:{broker}" in first.stderr
    assert f"redis listens on 127.0.0.1:{redis}" in first.stderr
    assert "not durable" in first.stderr
    assert accepts(broker)
    assert accepts(redis)

    script = (
        'source .cluster/env; printf "%s\n" "$THREADLOG_KAFKA__BOOTSTRAP" "$THREADLOG_BLOBS__URL"'
    )
    told = subprocess.run(
        ["bash", "-euc", script], cwd=clone, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert told == [f"127.0.0.1:{broker}", (clone / ".cluster" / "blobs").as_uri()]

    again = cluster(clone, "up", **ports)
    assert f"kafka runs already on 127.0.0.1:{broker}" in again.stderr
    assert f"redis runs already on 127.0.0.1:{redis}" in again.stderr
    moved = cluster(clone, "up", **{**ports, "REDIS_PORT": "1"})
    assert moved.returncode == 1
    assert f"redis runs already on port {redis}, not 1" in moved.stderr

    assert cluster(clone, "down").returncode == 0
    assert not accepts(broker)
    assert not accepts(redis)
    assert (clone / ".cluster" / "kafka" / "data" / "meta.properties").exists()


def test_a_taken_port_is_refused_before_anything_starts(
    clone: Path, ports: dict[str, str], redis_url: str
) -> None:
    taken = redis_url.partition("127.0.0.1:")[2].partition("/")[0]
    refused = cluster(clone, "up", **{**ports, "REDIS_PORT": taken})
    assert refused.returncode == 1
    assert refused.stderr == f"cluster: redis: port {taken} is taken by something else\n"
    assert not accepts(int(ports["KAFKA_PORT"]))


def test_a_pid_that_is_not_ours_is_left_alone(clone: Path) -> None:
    (clone / ".cluster").mkdir()
    with subprocess.Popen(["sleep", "60"], cwd=clone) as stranger:
        (clone / ".cluster" / "redis.pid").write_text(f"{stranger.pid} 6379\n")
        done = cluster(clone, "down")
        assert "redis does not run" in done.stderr
        assert stranger.poll() is None
        stranger.kill()
