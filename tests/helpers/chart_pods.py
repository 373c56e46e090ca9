"""Pods of the chart as processes of this machine: the kubelet's part, in a folder.

A volume is a folder, shared where it is one claim; a secret is its files. What a container is told
of mounts and ports is what its manifest says, with the paths and ports of this machine instead.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.chart import Document
from tests.helpers.servers import reserved_port

SECRET_MODE = 0o440
_PORTS = {"metrics": "THREADLOG_METRICS__PORT", "http": "THREADLOG_GATEWAY__PORT"}


@dataclass(frozen=True, slots=True)
class Placed:
    """A container that can be started. `ports`: of this machine, by name."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ports: Mapping[str, int]
    container: Document
    grace_s: float

    def probe(self, kind: str) -> str:
        """The address that this probe asks."""
        asked = self.container[f"{kind}Probe"]["httpGet"]
        return f"http://127.0.0.1:{self.ports[asked['port']]}{asked['path']}"


@dataclass(frozen=True, slots=True)
class Node:
    """A folder for volumes, and what secrets hold: by name, then by key."""

    home: Path
    secrets: Mapping[str, Mapping[str, str]]
    ports: ExitStack

    def placed(self, pod: str, spec: Document, container: Document, maps: Document) -> Placed:
        """The container with its volumes made."""
        folders = {each["name"]: self._folder(pod, each) for each in spec["volumes"]}
        mounts = {m["mountPath"]: folders[m["name"]] for m in container["volumeMounts"]}
        ports = {
            each["name"]: self.ports.enter_context(reserved_port())
            for each in container.get("ports", [])
        }
        env = {name: _moved(name, value, mounts) for name, value in self._told(container, maps)}
        env |= {_PORTS[name]: str(port) for name, port in ports.items()}
        grace_s = float(spec.get("terminationGracePeriodSeconds", 30))
        return Placed(container["name"], tuple(container["args"]), env, ports, container, grace_s)

    def _told(self, container: Document, maps: Document) -> Iterator[tuple[str, str]]:
        for source in container.get("envFrom", []):
            yield from maps[source["configMapRef"]["name"]].items()
        for each in container["env"]:
            if "value" in each:
                yield each["name"], each["value"]
            else:
                place = each["valueFrom"]["secretKeyRef"]
                yield each["name"], self.secrets[place["name"]][place["key"]]

    def _folder(self, pod: str, volume: Document) -> Path:
        """The folder of a volume. A secret that lacks a key is an error, as for a kubelet."""
        if claim := volume.get("persistentVolumeClaim"):
            folder = self.home / "claims" / str(claim["claimName"])
        else:
            folder = self.home / "pods" / pod / str(volume["name"])
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if secret := volume.get("secret"):
            assert secret["defaultMode"] == SECRET_MODE
            for item in secret["items"]:
                path = folder / item["path"]
                path.write_text(self.secrets[secret["secretName"]][item["key"]])
                path.chmod(SECRET_MODE)
        return folder


def _moved(name: str, value: str, mounts: Mapping[str, Path]) -> str:
    """The value, with a path of the container as it is here. All of them must lie in a mount."""
    scheme, path = ("file://", value[7:]) if value.startswith("file://") else ("", value)
    if not path.startswith("/"):
        return value
    for mount, folder in mounts.items():
        if path == mount or path.startswith(f"{mount}/"):
            return f"{scheme}{folder}{path.removeprefix(mount)}"
    raise AssertionError(f"{name} names {path}, which is in no volume")
