"""The walk-through of docs/http.md, pasted: what a reader is told to type is what is run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.servers import reserved_port

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "http.md"
DEADLINE_S = 60.0


@pytest.mark.timeout(90)
def test_the_walk_through_can_be_pasted(short_dir: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    with reserved_port() as port:
        text = "\n".join(blocks).replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        environment = {
            "HOME": str(short_dir),
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "THREADLOG_GATEWAY__PORT": str(port),
        }
        done = subprocess.run(
            ["bash", "-c", f"set -m\n{text}"],
            cwd=short_dir,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    said = f"{done.stdout}\n{done.stderr}"
    assert '"receipt":"' in done.stdout, said
    whole, resumed = done.stdout.split("retry: ")[1:]
    seqs = [int(seq) for seq in re.findall(r"^id: (\d+)$", whole, re.MULTILINE)]
    assert seqs == list(range(len(seqs))), said
    assert "turn.finished" in whole, said
    assert 'event: end\ndata: {"reason":"turn_finished"}' in whole, said
    again = [int(seq) for seq in re.findall(r"^id: (\d+)$", resumed, re.MULTILINE)]
    assert again == seqs[6:], said
    assert '"verdict":"completed"' in done.stdout, said
    assert '"total":{"steps":' in done.stdout, said
