"""Every service runs with what the chart gives it, on a real broker and Redis; a turn goes through.

What a kubelet would do is done here: volumes, secrets, environment, probes and the stop are those
of the manifests. What that cannot show is said in docs/helm.md.
"""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.chart import containers, documents, is_map, of_kind, pods
from tests.helpers.chart_pods import Node, Placed
from tests.helpers.cluster import until_true
from tests.helpers.cluster_model import counted_model
from tests.helpers.nursery import Child, Nursery, nursery
from threadlog.cli.cluster_commands import ServiceChoice
from threadlog.ids import draw

SCRIPT: list[Mapping[str, object]] = [
    {"text": "I look.", "calls": ["echo one > a.txt && cat a.txt"]},
    {"text": "Done.", "usage": {"input": 10, "output": 2}},
]
KNOWN = {choice.value for choice in ServiceChoice}
READY_S = 30.0


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as started:
        yield started


class Release:
    """The minimal values on this machine's broker and Redis, and the processes of its pods."""

    def __init__(self, children: Nursery, home: Path, bootstrap: str, model_url: str) -> None:
        prefix = f"t-{draw()[:13]}"
        self.values = (
            *("--set", f"kafka.bootstrapServers={bootstrap},kafka.prefix={prefix}"),
            *("--set", "kafka.partitions=4,kafka.replication=1,kafka.allowFewReplicas=true"),
            *("--set", "redis.url=,redis.existingSecret=threadlog-redis,topics.hook=apply"),
            *("--set", f"models.openai.baseUrl={model_url},listenAddress=127.0.0.1"),
        )
        self.children, self.home = children, home
        self.running: dict[str, tuple[Placed, Child]] = {}

    def placed(self, node: Node) -> dict[str, Placed]:
        """Every container of every pod that runs `threadlog`, by its name."""
        maps = {
            each["metadata"]["name"]: each["data"]
            for each in documents("minimal", *self.values)
            if is_map(each)
        }
        return {
            container["name"]: node.placed(pod, spec, container, maps)
            for pod, spec in pods("minimal", *self.values)
            for container in containers(spec)
            if "args" in container
        }

    def start(self, placed: Placed, *argv: str) -> Child:
        """The container runs, or another command with its environment."""
        words = argv or placed.argv
        out = self.home / f"{placed.name}-{draw()[:8]}.txt"
        env = {"PATH": os.environ["PATH"], **placed.env}
        return self.children.start(*words, env=env, cwd=self.home, out=out)

    async def run(self, placed: Placed, *argv: str) -> Child:
        """The same, to its end, which was a good one."""
        child = self.start(placed, *argv)
        assert await asyncio.to_thread(self.children.wait, child) == 0, child.stdout + child.stderr
        return child

    def stop(self) -> None:
        """No process of this release runs."""
        for _, child in self.running.values():
            self.children.kill(child)


async def status(url: str, host: str = "127.0.0.1") -> int:
    """The code of an answer; 0: none."""

    def ask() -> int:
        request = urllib.request.Request(url, headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    return await asyncio.to_thread(ask)


async def is_answered(placed: Placed, child: Child, probe: str) -> None:
    """The probe of the manifest succeeds, in the time that the manifest gives."""

    async def is_so() -> bool:
        assert child.status is None, child.stderr
        return await status(placed.probe(probe)) == 200

    await until_true(is_so, f"{placed.name}: {probe}: {child.stderr}", deadline_s=READY_S)


@pytest.mark.timeout(120)
async def test_F105_every_service_runs_as_the_chart_renders_it_and_a_turn_goes_through(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    async with counted_model(SCRIPT) as model:
        release = Release(children, short_dir, kafka_bootstrap, model.url)
        with ExitStack() as stack:
            stack.callback(release.stop)
            key, keys_file = await made_key(release)
            secrets = {
                "threadlog-redis": {"url": redis_url},
                "threadlog-openai": {"api-key": "unused"},
                "threadlog-keys": {"keys.json": keys_file},
            }
            placed = release.placed(Node(short_dir, secrets, stack))
            await release.run(placed["apply"])
            services = {name: placed[name] for name in of_kind("minimal", "Deployment")}
            for name in sorted(services.keys() & KNOWN):
                release.running[name] = services[name], release.start(services[name])
            assert set(release.running) >= KNOWN
            for one, child in release.running.values():
                for probe in ("startup", "liveness", "readiness"):
                    await is_answered(one, child, probe)
            await check_a_turn(release, key)
            doctor = await release.run(placed["doctor"])
            findings = json.loads(doctor.stdout)["findings"]
            well = {found["group"] for found in findings if found["level"] == "ok"}
            assert well >= {"log", "groups", "redis", "views", "blobs", "sandbox", "keys"}
            for one, child in release.running.values():
                await check_stop(release, one, child)
        assert len(model.asked) == 2


async def made_key(release: Release) -> tuple[str, str]:
    """A key, and the file that a secret is made of, as the chart says when it is missing."""
    path = release.home / "keys.json"
    env = {"HOME": str(release.home), "THREADLOG_GATEWAY__KEYS_FILE": str(path)}
    made = await release.run(client(env), "keys", "create", "--name", "app")
    return made.stdout.strip(), path.read_text()


def client(env: Mapping[str, str]) -> Placed:
    """A machine that is no part of the release."""
    return Placed("client", (), env, {}, {}, 0)


async def check_a_turn(release: Release, key: str) -> None:
    """A client with the key gets its answer; the names of the Service are known, others are not."""
    gateway, _ = release.running["gateway"]
    url = f"http://127.0.0.1:{gateway.ports['http']}"
    assert await status(f"{url}/v1/threads", "threadlog-gateway.agents.svc") == 401
    assert await status(f"{url}/v1/threads", "elsewhere.example.com") not in (0, 200, 401)
    argv = ("run", "go", "--model", "openai/scripted", "--url", url, "--json")
    env = {"HOME": str(release.home), "THREADLOG_KEY": key}
    ran = await release.run(client(env), *argv)
    document = json.loads(ran.stdout)
    assert (document["verdict"], document["answer"]) == ("completed", "Done.")
    written = list((release.home / "claims/threadlog-workspaces").rglob("a.txt"))
    assert len(written) == 1, "the command ran in the volume of the workspaces"


async def check_stop(release: Release, placed: Placed, child: Child) -> None:
    """SIGTERM ends it in order, long before Kubernetes would kill it."""
    child.send(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    code = await asyncio.to_thread(release.children.wait, child)
    assert code == 0, f"{placed.name}: {child.stderr}"
    assert loop.time() - began_s < placed.grace_s
