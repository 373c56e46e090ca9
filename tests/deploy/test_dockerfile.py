"""`deploy/Dockerfile` and the shell scripts without an engine: linted, and what they promise."""

import re
import subprocess
import sys
from pathlib import Path

from tests.arch.tree import ROOT, files, name_of
from tests.helpers import dockerfile
from tests.helpers.dockerfile import DOCKERFILE, Line, assigned, stage
from tests.helpers.outside import tool
from threadlog.adapters.sandbox import recipe
from threadlog.settings import Settings, _names

BASH = b"#!/usr/bin/env bash\n"
SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL", re.IGNORECASE)


def ran(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], check=False, cwd=ROOT, capture_output=True, text=True
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def words(name: str, word: str) -> list[str]:
    return [line.rest for line in stage(name) if line.word == word]


def test_F105_hadolint_finds_nothing() -> None:
    assert ran(tool("hadolint"), "--failure-threshold", "info", DOCKERFILE) == ""


def test_F105_shellcheck_finds_nothing_in_any_script() -> None:
    scripts = [p for p in files() if p.suffix == ".sh" or p.read_bytes().startswith(BASH)]
    assert {name_of(path) for path in scripts} >= {".ci/run", "deploy/install.sh"}
    assert ran(tool("shellcheck"), *scripts) == ""


def test_F105_both_stages_begin_with_the_base_that_a_release_pins() -> None:
    assert re.findall(r"^FROM (\S+) AS (\w+)$", DOCKERFILE.read_text(), re.MULTILINE) == [
        ("${BASE}", "builder"),
        ("${BASE}", "runtime"),
    ]
    [base] = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert base.endswith("-slim")


def test_F105_packages_come_by_hash_and_the_wheel_brings_none() -> None:
    installs = [
        step
        for rest in words("builder", "RUN")
        for step in rest.split(" && ")
        if "pip install" in step
    ]
    assert len(installs) == 2
    for step in installs:
        assert "--require-hashes -r requirements.lock" in step or "--no-deps --no-index" in step
    assert not [rest for rest in words("runtime", "RUN") if "pip" in rest]


def test_F105_the_image_runs_as_a_fixed_user_that_is_not_root() -> None:
    [user] = words("runtime", "USER")
    assert user == "10001:10001"
    [made] = [rest for rest in words("runtime", "RUN") if "useradd" in rest]
    assert "groupadd --gid 10001" in made
    assert "useradd --uid 10001 --gid 10001" in made


def test_F105_it_is_the_program_itself_that_gets_the_signal() -> None:
    assert words("runtime", "ENTRYPOINT") == ['["/opt/threadlog/bin/threadlog"]']
    assert words("runtime", "STOPSIGNAL") == ["SIGTERM"]
    assert words("runtime", "HEALTHCHECK") == []


def test_F105_the_sandbox_finds_what_it_needs() -> None:
    [installed] = [rest for rest in words("runtime", "RUN") if "apt-get install" in rest]
    for package in ("bubblewrap", "libseccomp2", "python3"):
        assert f" {package} " in installed
    # Debian's own Python, and no other one, is at the place that the sandbox looks at.
    assert recipe.PYTHON == "/usr/bin/python3"


def test_F105_labels_and_the_running_process_name_version_and_revision() -> None:
    labels = assigned(stage("runtime"), "LABEL")
    assert labels["org.opencontainers.image.version"] == "${VERSION}"
    assert labels["org.opencontainers.image.revision"] == "${REVISION}"
    assert assigned(stage("runtime"), "ENV")["THREADLOG_REVISION"] == "${REVISION}"


def test_F105_no_secret_is_built_in_and_every_variable_is_a_setting() -> None:
    lines: list[Line] = [*stage("builder"), *stage("runtime")]
    names = {line.rest.partition("=")[0] for line in lines if line.word == "ARG"}
    variables = set(assigned(lines, "ENV"))
    assert not [name for name in names | variables if SECRET.search(name)]
    ours = {name for name in variables if name.startswith("THREADLOG_")}
    assert ours <= set(_names(Settings, "THREADLOG_"))


def test_F105_a_build_is_given_what_it_copies_and_nothing_more(tmp_path: Path) -> None:
    dockerfile.context(tmp_path)
    given = {path.name for path in tmp_path.iterdir()}
    copied = {
        name.partition("/")[0]
        for part in ("builder", "runtime")
        for rest in words(part, "COPY")
        if not rest.startswith("--from")
        for name in rest.split()[:-1]
    }
    assert given == copied
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


def test_F105_ready_says_no_where_nobody_answers() -> None:
    command = [sys.executable, "-I", str(ROOT / "deploy" / "ready.py"), "1"]
    assert subprocess.run(command, check=False).returncode == 1
