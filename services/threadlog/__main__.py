"""The program: `threadlog`, or `python -m threadlog`."""

import sys


def main() -> int:
    """The command line of this process ran; its exit code."""
    try:
        from threadlog.cli.main import main as run

        return run()
    except KeyboardInterrupt:  # while modules were being imported, or at the very end
        return 130


if __name__ == "__main__":
    sys.exit(main())
