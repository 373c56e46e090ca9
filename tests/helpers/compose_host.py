"""One machine's stand-in for the containers of `docker-compose.yml`.

Guarantees: a service starts with compose's own command line, from the environment that the image
would have, outside of the source tree; only addresses, ports and folders are those of this machine.
Whatever was started is killed in the end.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.helpers import dockerfile
from tests.helpers.dockerfile import STATE, VENV
from tests.helpers.servers import reserved_port
from threadlog.ids import draw

REVISION = "0123abc"
COMMAND_S = 60
"""The first imports of a new environment are read from disk."""
READY = f"{VENV}/ready.py"
Service = Mapping[str, Any]


@dataclass(slots=True)
class Host:
    """`services`: as compose resolves them; `venv`: what the image has at /opt/threadlog."""

    home: Path
    venv: Path
    services: Mapping[str, Service]
    bootstrap: str
    redis_url: str
    ports: dict[str, int] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    prefix: str = field(default_factory=lambda: f"t-{draw()[:13]}")
    _undo: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        # As the image makes them.
        for name in ("blobs", "keys", "workspaces"):
            (self.home / name).mkdir(mode=0o711)
        for name in self.services:
            self.ports[name] = self._undo.enter_context(reserved_port())
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self._undo.close()

    def start(self, name: str) -> None:
        """`docker compose up NAME`, without its dependencies."""
        with self.said(name).open("wb") as out:
            self.running[name] = subprocess.Popen(
                self._command(name),
                cwd=self.home,
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said(self, name: str) -> Path:
        """All that it has printed."""
        return self.home / f"{name}.txt"

    def is_healthy(self, name: str) -> bool:
        """Its own health check passes now. Fails when the service has ended."""
        ended = self.running[name].poll()
        assert ended is None, f"{name} ended with {ended}: {self.said(name).read_text()}"
        word, *check = self.services[name]["healthcheck"]["test"]
        assert word == "CMD"
        check = [self._here(name, part) for part in check]
        done = subprocess.run(check, check=False, env=self._environment(name), cwd=self.home)
        return done.returncode == 0

    def run(self, name: str, words: Sequence[str] = (), **more: str) -> str:
        """`docker compose run NAME WORDS` ended well; what it printed on stdout."""
        command = self._command(name)
        done = subprocess.run(
            [command[0], *words] if words else command,
            check=False,
            cwd=self.home,
            env=self._environment(name) | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{name} {words}: {done.stdout}{done.stderr}{self.story()}"
        return done.stdout

    def stop(self) -> dict[str, int]:
        """Every service got SIGTERM; how each ended."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(COMMAND_S) for name, process in self.running.items()}

    def story(self) -> str:
        """The last words of every service."""
        return "".join(f"\n--- {n}: {self.said(n).read_text()[-2_000:]}" for n in self.running)

    def _command(self, name: str) -> list[str]:
        words = [self._here(name, word) for word in self.services[name]["command"]]
        return [str(self.venv / "bin" / "threadlog"), *words]

    def _environment(self, name: str) -> dict[str, str]:
        """The variables of the container: of its image, then of compose, then this machine's."""
        image = dockerfile.assigned(dockerfile.stage("runtime"), "ENV")
        given = {**image, **(self.services[name].get("environment") or {})}
        found = {key: self._here(name, text) for key, text in given.items() if text is not None}
        found |= {"PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}", "HOME": str(self.home)}
        found |= {"THREADLOG_REVISION": REVISION}
        if "THREADLOG_KAFKA__PREFIX" in found:
            found["THREADLOG_KAFKA__PREFIX"] = self.prefix
        if "THREADLOG_GATEWAY__HOST" in found:
            found |= {"THREADLOG_GATEWAY__PORT": str(self.ports[name]), _METRICS: "0"}
        elif "THREADLOG_METRICS__HOST" in found:
            found[_METRICS] = str(self.ports[name])
        return found

    def _here(self, name: str, text: str) -> str:
        """What the container reads as `text`, with this machine's addresses and folders."""
        changes = {
            "kafka:9092": self.bootstrap,
            "redis://redis:6379/0": self.redis_url,
            "0.0.0.0": "127.0.0.1",  # noqa: S104,RUF100  # nothing listens beyond loopback
            READY: str(dockerfile.ROOT / "deploy" / "ready.py"),
            f"{STATE}/data": str(self.home / f"{name}-data"),
            STATE: str(self.home),
        }
        for volume in self.services[name].get("volumes", ()):
            if volume["type"] == "bind":
                changes[volume["target"]] = volume["source"]
        for other in self.services:
            if (port := self._inside(other)) is not None:
                changes[f"{other}:{port}"] = f"127.0.0.1:{self.ports[other]}"
        for there, here in changes.items():
            text = text.replace(there, here)
        return str(self.ports[name]) if text == self._inside(name) else text

    def _inside(self, name: str) -> str | None:
        """The port that its health check asks in the container."""
        check = self.services[name].get("healthcheck")
        return None if check is None else str(check["test"][-1])


_METRICS = "THREADLOG_METRICS__PORT"
