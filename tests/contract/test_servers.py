"""The servers that other tests rely on are real: they can be killed, and keep what they had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.servers import HOST, Redis, ServerError, accepts
from tests.helpers.servers import Broker, RedisServer, reserved_port

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "servers.kept"


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(TOPIC, num_partitions=1)]).values():
        done.result(timeout=20)


def produce(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(TOPIC, value)
    assert producer.flush(20) == 0


def consume(bootstrap: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        record = consumer.poll(20)
        assert record is not None, "nothing arrived"
        assert record.error() is None, record.error()
        return record.value()
    finally:
        consumer.close()


def test_a_record_survives_the_kill_of_its_broker(own_broker: Broker) -> None:
    create_topic(own_broker.bootstrap)
    produce(own_broker.bootstrap, b"kept")
    before = own_broker.pid
    own_broker.kill()
    own_broker.start()
    assert own_broker.pid != before
    assert consume(own_broker.bootstrap) == b"kept"


def test_a_killed_redis_starts_again_with_its_data(own_redis: RedisServer) -> None:
    with redis.Redis.from_url(own_redis.url, decode_responses=True) as client:
        client.set("a", "kept")
        own_redis.kill()
        own_redis.start()
        assert client.get("a") == "kept"
        own_redis.restart()
        assert client.get("a") == "kept"


def test_redis_can_lose_what_came_after_a_copy(own_redis: RedisServer) -> None:
    with redis.Redis.from_url(own_redis.url, decode_responses=True) as client:
        client.set("early", "kept")
        copy = own_redis.copy_data()
        client.set("late", "lost")
        own_redis.start_from(copy)
        assert client.mget("early", "late") == ["kept", None]


def test_a_server_stands_still_and_goes_on(own_redis: RedisServer) -> None:
    with redis.Redis.from_url(own_redis.url, socket_timeout=0.2, retry=None) as client:
        own_redis.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        own_redis.resume()
        assert client.ping()


def test_the_shared_servers_are_set_as_the_code_needs_them(
    kafka_bootstrap: str, redis_url: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    assert admin.list_topics(timeout=20).brokers
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        assert client.config_get("maxmemory-policy", "appendonly") == {
            "maxmemory-policy": "noeviction",
            "appendonly": "yes",
        }


def test_a_port_is_reserved_for_one() -> None:
    with reserved_port() as first:
        with reserved_port() as second:
            assert first != second
        assert not accepts(first)


def test_a_taken_port_is_refused_in_one_line(own_redis: RedisServer, tmp_path: Path) -> None:
    port = own_redis.server.port
    second = Redis(tmp_path, port)
    with pytest.raises(ServerError, match=f"^redis: port {port} is taken by something else$"):
        second.start()
    assert second.process is None


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with reserved_port() as port:
        server = Redis(tmp_path, port, settings={"maxmemory-policy": "sometimes"})
        with pytest.raises(ServerError, match=r"redis ended with 1: .*sometimes"):
            server.start()
        assert server.process is None


# -- the run itself


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TEST_") and k != "CI"}
    return {**kept, **changes}


def start_run(test: str, **changes: str) -> subprocess.Popen[str]:
    """One test of this file, in a run of pytest of its own."""
    node = f"{Path(__file__).relative_to(ROOT)}::{test}"
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", node],
        cwd=ROOT,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("kafka_bootstrap")  # where there is no broker, this is not run either
def test_two_runs_at_once_do_not_meet() -> None:
    runs = [
        start_run(test_the_shared_servers_are_set_as_the_code_needs_them.__name__) for _ in range(2)
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "\n".join(outputs)


@pytest.mark.parametrize(("ci", "code", "result"), [("", 0, "1 skipped"), ("true", 1, "1 error")])
def test_a_missing_server_is_named_and_fails_in_ci(ci: str, code: int, result: str) -> None:
    name = test_a_killed_redis_starts_again_with_its_data.__name__
    run = start_run(name, PATH=os.fspath(ROOT / "schemas"), CI=ci)
    output = run.communicate()[0]
    assert run.returncode == code, output
    assert "\nlane not run: redis (no redis-server: `make setup-dev`" in output
    assert result in output.splitlines()[-1]


def test_no_server_outlives_a_killed_run() -> None:
    script = (
        "import sys\n"
        "from tests.helpers.servers import RedisServer\n"
        "with RedisServer() as server:\n"
        "    print(server.server.port, server.folder, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    port, folder = run.stdout.readline().split()
    assert accepts(int(port))
    assert Path(folder).exists()
    run.kill()
    run.communicate()
    while accepts(int(port)) or Path(folder).exists():
        pass


def test_servers_listen_on_this_machine_alone(own_redis: RedisServer) -> None:
    assert own_redis.url.startswith(f"redis://{HOST}:")
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{own_redis.server.port:04X}")
    ]
    assert listening == [f"0100007F:{own_redis.server.port:04X}"]
