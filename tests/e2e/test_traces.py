"""One turn through real processes, as a collector of traces and a reader of logs see it."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.cluster import NAMES, Cluster, cluster, until
from tests.helpers.collector import Collector, collecting
from tests.helpers.nursery import Child, Nursery, nursery
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.events.content import ModelRef, TextPart
from threadlog.events.trace import span_of, turn_root
from threadlog.limits import TRACE_SEND_MS

PROMPT, ANSWER, ARGUMENT, OUTPUT, SECRET = (
    f"canary-{name}-7f3a" for name in ("prompt", "answer", "argument", "output", "secret")
)
CANARIES = (PROMPT, ANSWER, ARGUMENT, OUTPUT, SECRET)
SCRIPT = [
    {
        "text": ANSWER,
        "calls": [f"echo {OUTPUT[:10]}''{OUTPUT[10:]}; echo {ARGUMENT} >&2; exit 3"],
        "usage": {"input": 7, "output": 3},
    },
    {"text": ANSWER, "usage": {"input": 10, "output": 2}},
]
CALLER = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
STATE = "vendor=1"
STOP_S = 2 * TRACE_SEND_MS / 1_000 + 4
"""The last request to the collector, what a stop costs anyway, and a slow machine."""
MODEL = {"provider": "scripted", "name": "script"}


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as started:
        yield started


def traced(script: Path, endpoint: str) -> dict[str, str]:
    return {
        "THREADLOG_TRACES__ENDPOINT": endpoint,
        "THREADLOG_LOGGING__FORMAT": "json",
        "THREADLOG_LOGGING__LEVEL": "debug",
        "THREADLOG_SCRIPTED__SCRIPT": str(script),
        "SOME_PASSWORD": SECRET,
    }


@contextlib.asynccontextmanager
async def gateway(one: Cluster, env: dict[str, str]) -> AsyncIterator[tuple[str, str, Child]]:
    """The address of a gateway, a key for it, and its process, which has ended in order."""
    made = await one.run("keys", "create", "--name", "test", "--json")
    key = json.loads(made.stdout)["key"]
    child = one.nursery.start(
        "serve",
        "gateway",
        "--metrics-port",
        "0",
        env=one.environment(THREADLOG_GATEWAY__PORT="0", **env),
        cwd=one.home,
        out=one.home / "gateway.txt",
    )
    try:
        await until(lambda: "gateway on http://" in child.stderr, f"it serves: {child.stderr}")
        found = re.search(r"gateway on (http://[0-9.]+:[0-9]+)", child.stderr)
        assert found is not None
        yield found[1], key, child
    finally:
        child.send(signal.SIGTERM)
        one.nursery.wait(child)


async def post(base: str, key: str, text: str, **headers: str) -> dict[str, Any]:
    """A new thread with a message."""
    body = {"settings": {"model": MODEL}, "message": {"content": text}}
    sent = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{base}/v1/threads", json.dumps(body).encode(), {**sent, **headers}
    )

    def ask() -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    return await asyncio.to_thread(ask)


def lines_of(child: Child) -> list[dict[str, Any]]:
    """What the process said: every line is an object with the members that all have."""
    lines = [json.loads(line) for line in child.stderr.splitlines()]
    for line in lines:
        assert {"time", "level", "logger", "message", "service"} <= line.keys(), line
        assert "instance" in line or line["service"] == "threadlog", "only before it is known"
    return lines


@pytest.mark.timeout(60)
async def test_F103_a_turn_is_one_trace_over_all_processes_without_a_word_of_content(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    script = short_dir / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with collecting() as collector:
        env = traced(script, collector.url)
        async with cluster(children, short_dir, (kafka_bootstrap, redis_url)) as one:
            processes = await one.start(*NAMES, **env)
            async with gateway(one, env) as (base, key, front):
                made = await post(
                    base,
                    key,
                    PROMPT,
                    **{"Traceparent": f"00-{CALLER[0]}-{CALLER[1]}-01", "Tracestate": STATE},
                )
                await until(lambda: collector.named("invoke_agent"), "the turn is told", processes)
                hostile = await post(base, key, PROMPT, Traceparent="00-0-0-01\t")
                await until(lambda: len(collector.named("invoke_agent")) > 1, "another turn")
            shown = await one.run("thread", "show", made["thread_id"], "--json")
            events = json.loads(shown.stdout)["events"]
            for process in processes:
                await one.terminate(process)
            said = [front, *(process.child for process in processes)]
            check_trace(collector, made["thread_id"], events)
            check_request(collector, hostile["thread_id"])
            check_logs(said, made["thread_id"], events)
            for canary in CANARIES:
                assert not any(canary.encode() in body for body in collector.raw)
                assert not any(canary in child.stderr for child in said)


def check_trace(collector: Collector, thread: str, events: list[dict[str, Any]]) -> None:
    """The spans of the first turn, with parents and links."""
    types = {event["type"]: event for event in events}
    turn = types["turn.started"]["id"]
    root = turn_root(turn, is_sampled=True)
    spans = [span for span in collector.spans if span.trace_id == root.trace_id]
    by_name = {name: [s for s in spans if s.name == name] for name in {s.name for s in spans}}
    [agent] = by_name["invoke_agent"]
    assert (agent.span_id, agent.parent) == (root.span_id, "")
    assert all(span.parent == root.span_id for span in spans if span is not agent)
    assert len({span.span_id for span in spans}) == len(spans)
    places = {(span.name, span.service) for span in spans}
    assert places == {
        ("invoke_agent", "threadlog-planner"),
        ("plan", "threadlog-planner"),
        ("chat", "threadlog-planner"),
        ("execute_tool", "threadlog-tool-runner"),
        ("append", "threadlog-tool-runner"),
        ("project", "threadlog-projection"),
    }
    for span in spans:
        assert span.attributes["threadlog.thread"] == thread
        assert span.attributes["threadlog.tenant"] == "local"
        assert span.attributes["threadlog.turn"] == turn
        assert {"service.version", "service.instance.id"} <= span.resource.keys()
    asked = by_name["chat"]
    assert [s.attributes["gen_ai.usage.output_tokens"] for s in asked] == [3, 2]
    assert {s.attributes["gen_ai.request.model"] for s in asked} == {"script"}
    [tool] = by_name["execute_tool"]
    assert tool.span_id == span_of(types["tool.started"]["id"])
    assert (tool.attributes["threadlog.outcome"], tool.is_error) == ("error", True)
    assert tool.attributes["threadlog.exit_code"] == 3

    # The request: in the caller's trace, linked from the turn, named by the event that it made.
    [request] = [s for s in collector.spans if s.trace_id == CALLER[0]]
    assert (request.name, request.service) == ("POST /v1/threads", "threadlog-gateway")
    assert request.parent == CALLER[1]
    assert request.attributes["threadlog.thread"] == thread
    assert agent.links == [(CALLER[0], request.span_id)]
    assert [s.links for s in by_name["plan"] if s.links] == [agent.links]
    message = types["message.received"]
    assert message["traceparent"] == f"00-{CALLER[0]}-{request.span_id}-01"
    assert message["tracestate"] == STATE
    of_turn = {event.get("traceparent") for event in events if event.get("correlationid")}
    assert of_turn == {root.text()}


def check_request(collector: Collector, thread: str) -> None:
    """A hostile header began nothing: the request has a trace of its own, linked all the same."""
    named = [s for s in collector.spans if s.attributes.get("threadlog.thread") == thread]
    [request] = [s for s in named if s.service == "threadlog-gateway"]
    [agent] = [s for s in named if s.name == "invoke_agent"]
    assert request.parent == ""
    assert agent.links == [(request.trace_id, request.span_id)]


def check_logs(said: list[Child], thread: str, events: list[dict[str, Any]]) -> None:
    """Lines of each service parse and name it; those of the turn carry its ids."""
    types = {event["type"]: event["id"] for event in events}
    root = turn_root(types["turn.started"], is_sampled=True)
    started = {"planner": "step.started", "tool-runner": "tool.started"}
    for child, name in zip(said, ("gateway", *NAMES), strict=True):
        lines = lines_of(child)
        assert {line["service"] for line in lines} <= {name, "threadlog"}
        assert any(line["message"].startswith(f"{name} ") for line in lines)
        assert any(line["message"].startswith("stopping") for line in lines)
        of_thread = [line for line in lines if line.get("thread") == thread]
        assert all(line["tenant"] == "local" for line in of_thread)
        if name in started:
            span = span_of(types[started[name]])
            [line] = [line for line in of_thread if line.get("span_id") == span]
            assert line["trace_id"] == root.trace_id
            assert line["seq"] >= 0
        if name == "gateway":
            assert {line["trace_id"] for line in of_thread} == {CALLER[0]}


@pytest.mark.timeout(60)
async def test_F103_a_collector_that_never_answers_holds_up_no_turn_and_no_stop(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    script = short_dir / "script.json"
    script.write_text(json.dumps(SCRIPT))
    async with cluster(children, short_dir, (kafka_bootstrap, redis_url)) as one:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            env = traced(script, f"http://127.0.0.1:{silent.getsockname()[1]}")
            processes = await one.start(*NAMES, **env)
            ran = await one.run("run", "go", "--model", "scripted/script", "--json")
            assert json.loads(ran.stdout)["verdict"] == "completed"
            await until(lambda: "spans are lost" in processes[0].child.stderr, "it is said")
            again = await one.run("run", "go", "--model", "scripted/script", "--json")
            assert json.loads(again.stdout)["verdict"] == "completed"
            now_s = asyncio.get_running_loop().time
            began_s = now_s()
            for process in processes:
                one.tell_to_end(process)
            for process in processes:
                assert await one.ended(process) == 0
            took_s = now_s() - began_s
        print(f"stopped in {took_s:.1f} s")  # noqa: T201  # a figure for a report
        assert took_s < STOP_S
        for process in processes:
            assert process.child.stderr.count("spans are lost") <= 1
            lines_of(process.child)


@pytest.mark.timeout(60)
async def test_F103_a_planner_that_takes_over_goes_on_in_the_trace(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    script = short_dir / "script.json"
    script.write_text(json.dumps([{"text": ANSWER, "delay_ms": 1_500}]))
    with collecting() as collector:
        env = traced(script, collector.url)
        async with cluster(children, short_dir, (kafka_bootstrap, redis_url)) as one:
            first, _ = await one.start("planner", "projection", **env)
            new = NewThread(
                ThreadSettings(model=ModelRef(provider="scripted", name="script")),
                message=NewMessage((TextPart(text=PROMPT),)),
            )
            async with one.connected() as client:
                await client.commands("user:test").create_thread(new, key="k")
            begins = "the effect of claim"
            await until(lambda: begins in first.child.stderr, "the model is asked", [first])
            await one.kill(first)
            await one.start("planner", **env)
            await until(lambda: collector.named("invoke_agent"), "the turn is told", one.processes)
        [agent] = collector.named("invoke_agent")
        asked = [span for span in collector.named("chat") if span.trace_id == agent.trace_id]
        assert all(span.parent == agent.span_id for span in asked)
        assert [span.attributes["threadlog.outcome"] for span in asked] == ["released", "responded"]
        assert asked[0].attributes["error.type"] == "worker_gone"
        ended = {span.resource["service.instance.id"] for span in (agent, *asked)}
        assert len(ended) == 1, "the dead one told nothing"


async def test_F103_one_process_on_a_file_traces_too(children: Nursery, short_dir: Path) -> None:
    script = short_dir / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with collecting() as collector:
        one = Cluster(children, short_dir, "", "")
        bare = {name: None for name in one.environment() if "KAFKA" in name or "REDIS" in name}
        env = {**bare, **traced(script, collector.url), "THREADLOG_BLOBS__URL": None}
        ran = await one.run("run", PROMPT, "--script", str(script), "--copy", **env)
        assert ran.status == 0, ran.stderr
        names = [span.name for span in collector.spans]
        assert names.count("invoke_agent") == 1
        assert (names.count("chat"), names.count("execute_tool")) == (2, 1)
        assert {span.service for span in collector.spans} == {"threadlog-embedded"}
        services = {span.attributes["threadlog.service"] for span in collector.spans}
        assert services == {"planner", "tool_runner", "projection"}
        assert not any(c.encode() in body for c in CANARIES for body in collector.raw)
