"""`docker-compose.yml` without an engine: it is read, linted, and keeps to what it promises."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.helpers import compose
from tests.helpers.compose import EXAMPLE, FILE, IMAGE, PROFILES, ROOT
from tests.helpers.outside import tool
from threadlog.bootstrap import gateway_service, metering_service, serving
from threadlog.bootstrap.gateway import API_PORT
from threadlog.cli.cluster_commands import ServiceChoice
from threadlog.cli.main import make_app
from threadlog.limits import WORKER_DRAIN_MS
from threadlog.settings import Settings, _names

JOBS = {"topics", "cli"}
PORTS = {str(name): port for name, port in serving.PORTS.items()}
PORTS["gateway"] = gateway_service.METRICS_PORT
PORTS["metering"] = metering_service.METRICS_PORT
SCRIPT = str(ROOT / "examples" / "first-turn.json")
KNOWN = frozenset(_names(Settings, "THREADLOG_"))
_UNITS = {"h": 3_600, "m": 60, "s": 1}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    return compose.services()


def of_image(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in services.items() if each["image"] == IMAGE}


def served(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The services of Threadlog, which all need a broker and serve metrics."""
    return {n: each for n, each in of_image(services).items() if each["command"][0] == "serve"}


def seconds(text: str) -> int:
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)([hms])", text))


@pytest.mark.parametrize("profile", PROFILES)
def test_F105_every_profile_of_compose_is_read_without_a_warning(profile: str) -> None:
    assert compose.services(profile)


def test_F105_profiles_hold_what_they_are_named_for() -> None:
    core, watching = set(compose.services("core")), set(compose.services("observability"))
    assert core == {*ServiceChoice, "kafka", "redis", "topics", "scripted-model"}
    assert watching == {"prometheus", "grafana"}
    assert set(compose.services("tools")) == {"cli"}
    assert set(compose.services("full")) == core | watching


def test_F105_dclint_finds_nothing() -> None:
    command = [str(tool("dclint")), "--max-warnings", "0", str(FILE)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_F105_the_file_has_a_name_and_no_version() -> None:
    document = yaml.safe_load(FILE.read_text())
    assert document["name"] == "threadlog"
    assert "version" not in document


def test_F105_every_variable_of_compose_is_a_setting(services: dict[str, dict[str, Any]]) -> None:
    written = set(re.findall(r"\bTHREADLOG_\w+", FILE.read_text() + EXAMPLE.read_text()))
    given = {name for each in services.values() for name in each.get("environment", {})}
    ours = {name for name in written | given if name.startswith("THREADLOG_")}
    # The comment that opens each file names them as a kind.
    assert ours - {"THREADLOG_"} <= KNOWN


def test_F105_the_example_shows_every_knob_with_its_value() -> None:
    asked, shown = compose.knobs(), compose.shown()
    # These two are read by compose itself, and passed on from the shell.
    assert set(shown) == set(asked) | {"COMPOSE_PROFILES", "THREADLOG_KEY"}
    assert {name: shown[name] for name in asked} == asked


def test_F105_no_port_is_open_beyond_loopback(services: dict[str, dict[str, Any]]) -> None:
    ports = [(name, port) for name, each in services.items() for port in each.get("ports", ())]
    assert {name for name, _ in ports} == {"gateway", "prometheus", "grafana"}
    assert [name for name, port in ports if port.get("host_ip") != "127.0.0.1"] == []
    assert [name for name, each in services.items() if each.get("network_mode")] == []


def test_F105_no_image_is_latest(services: dict[str, dict[str, Any]]) -> None:
    loose = [
        each["image"]
        for each in services.values()
        if not re.search(r":(?!latest)[\w.-]+$", each["image"])
    ]
    assert loose == []


def test_F105_the_broker_is_the_one_that_tests_run(services: dict[str, dict[str, Any]]) -> None:
    pom = (ROOT / "deploy" / "kafka" / "pom.xml").read_text()
    tested = re.search(r"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)<", pom)
    assert tested
    assert services["kafka"]["image"] == f"apache/kafka:{tested[1]}"


def test_F105_the_broker_has_the_settings_that_tests_run_with(
    services: dict[str, dict[str, Any]],
) -> None:
    given = services["kafka"]["environment"]
    text = (ROOT / "deploy" / "kafka" / "server.properties").read_text()
    for name, value in re.findall(r"^([a-z.]+)=(.*)$", text, re.MULTILINE):
        if name == "log.dirs":
            assert given["KAFKA_LOG_DIRS"] == services["kafka"]["volumes"][0]["target"]
        else:
            assert given[f"KAFKA_{name.upper().replace('.', '_')}"] == value, name


def test_F105_redis_never_drops_a_key_and_writes_what_it_has(
    services: dict[str, dict[str, Any]],
) -> None:
    line = " ".join(services["redis"]["command"])
    assert "--maxmemory-policy noeviction" in line
    assert "--appendonly yes" in line


def test_F105_every_service_has_a_bound_of_memory(services: dict[str, dict[str, Any]]) -> None:
    assert [name for name, each in services.items() if not int(each.get("mem_limit", 0))] == []


def test_F105_whatever_stays_has_a_health_check(services: dict[str, dict[str, Any]]) -> None:
    without = {name for name, each in services.items() if "test" not in each.get("healthcheck", {})}
    assert without == JOBS


def test_F105_health_checks_ask_the_port_of_their_service(
    services: dict[str, dict[str, Any]],
) -> None:
    for name, each in served(services).items():
        port = API_PORT if name == "gateway" else PORTS[name]
        wanted = ["CMD", "python3", "/opt/threadlog/ready.py", str(port)]
        assert each["healthcheck"]["test"] == wanted, name


def test_F105_nobody_waits_for_less_than_health(services: dict[str, dict[str, Any]]) -> None:
    for name, each in services.items():
        for other, wait in each.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in JOBS else "service_healthy"
            assert wait["condition"] == wanted, f"{name} on {other}"


def test_F105_a_stop_outlasts_the_calls_that_run(services: dict[str, dict[str, Any]]) -> None:
    for name, each in served(services).items():
        drain_ms = int(each["environment"]["THREADLOG_WORKER__DRAIN_TIMEOUT_MS"])
        assert drain_ms == WORKER_DRAIN_MS
        assert seconds(each["stop_grace_period"]) * 1_000 > drain_ms, name


def test_F105_containers_are_confined(services: dict[str, dict[str, Any]]) -> None:
    for name, each in services.items():
        assert each["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in each["security_opt"], name
        assert not each.get("privileged"), name
        assert not each.get("cap_add"), name
    writable = {name for name, each in services.items() if not each.get("read_only")}
    assert writable == {"kafka"}
    loose = {name for name, each in services.items() if len(each["security_opt"]) > 1}
    assert loose == {"tool-runner"}


def test_F105_what_is_mounted_is_there(services: dict[str, dict[str, Any]]) -> None:
    gone = [
        volume["source"]
        for each in services.values()
        for volume in each.get("volumes", ())
        if volume["type"] == "bind" and not Path(volume["source"]).exists()
    ]
    assert gone == []


def test_F105_prometheus_and_grafana_ask_services_by_their_names(
    services: dict[str, dict[str, Any]],
) -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    [job] = scraped["scrape_configs"]
    targets = {target for group in job["static_configs"] for target in group["targets"]}
    assert targets >= {f"{name}:{PORTS[name]}" for name in served(services)}
    provisioned = ROOT / "deploy/grafana/provisioning"
    sources = yaml.safe_load((provisioned / "datasources/threadlog.yml").read_text())["datasources"]
    assert [source["url"] for source in sources] == ["http://prometheus:9090"]
    boards = yaml.safe_load((provisioned / "dashboards/threadlog.yml").read_text())["providers"]
    mounted = {volume["target"] for volume in services["grafana"]["volumes"]}
    assert {board["options"]["path"] for board in boards} <= mounted


def test_F105_folders_are_made_by_the_image(services: dict[str, dict[str, Any]]) -> None:
    """Or the volume would belong to root, and nobody could write it."""
    made = (ROOT / "deploy" / "Dockerfile").read_text().split()
    for each in of_image(services).values():
        volumes = [v["target"] for v in each.get("volumes", ()) if v["type"] == "volume"]
        assert set(volumes) <= set(made)
        for folder in each["tmpfs"]:
            assert folder.startswith("/tmp:") or "uid=10001,gid=10001" in folder


def test_F105_folders_that_settings_name_are_mounted(services: dict[str, dict[str, Any]]) -> None:
    """Or what was written there would be refused: the root is read-only."""
    for name, each in of_image(services).items():
        mounted = [volume["target"] for volume in each.get("volumes", ())]
        for value in (each.get("environment") or {}).values():
            path = (value or "").removeprefix("file://")
            if path.startswith("/"):
                assert [m for m in mounted if Path(path).is_relative_to(m)], f"{name}: {path}"


def test_F105_command_lines_are_what_the_program_takes(
    services: dict[str, dict[str, Any]],
) -> None:
    """Parsed by the program itself, which is not run."""
    for name, each in of_image(services).items():
        words = [SCRIPT if word.startswith("/etc/") else word for word in each["command"]]
        command: Any = typer.main.get_command(make_app())
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(name, words)
