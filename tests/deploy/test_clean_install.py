"""The image's install lines in a clean environment, and compose's services started from it.

What stands for the containers: the virtual environment that the Dockerfile's builder stage makes,
and compose's own command lines, variables and health checks.
"""

import http.client
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.helpers import compose
from tests.helpers.compose_host import REVISION, Host
from tests.helpers.machine import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_F105_the_install_lines_of_the_image_need_nothing_else(
    clean_venv: Path, tmp_path: Path
) -> None:
    program = "import threadlog; print(threadlog.__file__)"
    run = [str(clean_venv / "bin" / "python"), "-I", "-c", program]
    found = subprocess.run(run, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert Path(found.strip()).is_relative_to(clean_venv)


def test_F102_a_turn_runs_through_the_services_of_compose(
    clean_venv: Path, short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    """And each of them becomes healthy, and ends in order when it is told to."""
    services = {
        name: each for name, each in compose.services().items() if each["image"] == compose.IMAGE
    }
    staying = [name for name, each in services.items() if "healthcheck" in each]
    with Host(short_dir, clean_venv, services, kafka_bootstrap, redis_url) as host:
        host.run("topics")
        for name in staying:
            host.start(name)
        for name in staying:
            until(partial(host.is_healthy, name), f"{name} is healthy")
        key = host.run("cli", ["keys", "create", "--tenant", "acme", "--name", "first"]).strip()
        answer = host.run("cli", ["run", "Say hello."], THREADLOG_KEY=key)
        assert answer.startswith("Done: hello.py runs"), host.story()
        tree = host.run("cli", ["thread", "tree", "last"], THREADLOG_KEY=key)
        assert "python3 hello.py" in tree
        usage = host.run("cli", ["usage", "--json"], THREADLOG_KEY=key)
        assert '"cost_micros":null' not in usage
        assert _status(host, key, "gateway:8080") == 200
        assert _status(host, key, "elsewhere:8080") == 403
        assert f'revision="{REVISION}"' in _page(host.ports["planner"])
        assert host.stop() == dict.fromkeys(staying, 0), host.story()


def _status(host: Host, key: str, name: str) -> int:
    """What the gateway answers who calls it by that name."""
    connection = http.client.HTTPConnection("127.0.0.1", host.ports["gateway"], timeout=10)
    headers = {"Host": name, "Authorization": f"Bearer {key}"}
    connection.request("GET", "/v1/threads", headers=headers)
    with connection.getresponse() as answer:
        answer.read()
    connection.close()
    return answer.status


def _page(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    with connection.getresponse() as answer:
        text = answer.read().decode()
    connection.close()
    return text
