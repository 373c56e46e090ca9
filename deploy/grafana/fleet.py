"""The fleet dashboard: `fleet.json` is written from the sections that this module puts in order.

Run as `python -m deploy.grafana.fleet --write` or `--check`. Queries have fixed windows of five
minutes, so that every one of them can be parsed as it stands.
"""

import json
import sys
from pathlib import Path
from typing import Final

from deploy.grafana.fleet_services import EFFECTS, LOG, NETS, PARTS, STREAMS, WORKERS
from deploy.grafana.fleet_users import FRESHNESS, GATEWAY, GLANCE, TURNS
from deploy.grafana.panels import dashboard

TARGET: Final = Path(__file__).with_name("fleet.json")
UID: Final = "threadlog-fleet"
SECTIONS: Final = (GLANCE, TURNS, FRESHNESS, GATEWAY, WORKERS, LOG, NETS, STREAMS, EFFECTS, PARTS)


def render() -> str:
    """The text of `fleet.json` as it must be now."""
    text = "Whether turns are answered, events are fresh, and what stands behind it when not."
    return json.dumps(dashboard(UID, "Threadlog: fleet", text, SECTIONS), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """Writes the dashboard, or says whether it is stale."""
    match arguments:
        case ["--write"]:
            TARGET.write_text(render())
            return 0
        case ["--check"]:
            is_current = TARGET.exists() and TARGET.read_text() == render()
            if not is_current:
                print("deploy/grafana/fleet.json is stale: make dashboards", file=sys.stderr)
            return not is_current
        case _:
            print("usage: python -m deploy.grafana.fleet --write|--check", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
