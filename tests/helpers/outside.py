"""The programs of `deploy/tools.sh`: each is there, or its tests say that they did not run."""

from pathlib import Path

from deploy.servers import ROOT
from tests.helpers.servers import need

_HOMES = (".tools/bin", ".tools/node/node_modules/.bin", ".venv/bin")


def tool(name: str) -> Path:
    """The program `name`. Where it is missing the test fails in CI and is skipped elsewhere."""
    found = next((ROOT / home / name for home in _HOMES if (ROOT / home / name).exists()), None)
    need(name, None if found else "it is not in .tools: run `make tools`")
    assert found is not None
    return found
