"""`threadlog up` serves the metrics of its services where a port is named for them."""

import json
import os
import re
import urllib.request
from pathlib import Path

from tests.helpers.cluster import metric, until
from tests.helpers.nursery import nursery

SCRIPT = [{"text": "answered", "usage": {"input": 5, "output": 1}}]
_METRICS = re.compile(r"metrics on ([0-9.]+:[0-9]+)")


async def test_F103_up_counts_a_turn_and_shows_nothing_of_kafka(tmp_path: Path) -> None:
    script, work = tmp_path / "s.json", tmp_path / "work"
    script.write_text(json.dumps(SCRIPT))
    work.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "THREADLOG_DATA_DIR": str(tmp_path / "data"),
        "THREADLOG_SANDBOX": "off",
        "THREADLOG_METRICS__PORT": "0",
        "THREADLOG_GATEWAY__PORT": "0",
    }
    with nursery() as children:
        argv = ("--script", str(script))
        up = children.start("up", *argv, env=env, cwd=work, out=tmp_path / "up.txt")
        await until(lambda: "HTTP on" in up.stderr, f"it serves: {up.stderr}")
        run = children.start("run", *argv, "hello", env=env, cwd=work, out=tmp_path / "run.txt")
        assert children.wait(run) == 0, run.stderr
        found = _METRICS.search(up.stderr)
        assert found, up.stderr
        with urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=5) as answer:
            page = answer.read().decode()
    assert metric(page, "threadlog_turn_duration_seconds_count", {"outcome": "completed"}) == 1
    assert metric(page, "threadlog_model_attempts_total", {"outcome": "ok"}) == 1
    assert metric(page, "threadlog_events_processed_total", {"service": "projection"}) > 0
    assert metric(page, "threadlog_http_requests_total") > 0
    assert "threadlog_kafka_client_rtt_p99_seconds{" not in page
