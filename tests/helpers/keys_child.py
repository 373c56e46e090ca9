"""A process that makes keys: `python -m tests.helpers.keys_child FILE NAME COUNT`.

It prints `ready`, waits for a line, and prints each key once the file has it, COUNT in all.
"""

import sys
from pathlib import Path

from threadlog.adapters.keys.file import KeysFile
from threadlog.api.keys import DEFAULT_SCOPES
from threadlog.clock import SystemClock
from threadlog.ids import LOCAL_TENANT


def main(file: str, name: str, count: str) -> None:
    keys = KeysFile(Path(file), SystemClock())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(int(count)):
        _, key = keys.create(LOCAL_TENANT, f"{name}-{number}", DEFAULT_SCOPES, None)
        sys.stdout.write(f"{key}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
