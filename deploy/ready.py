"""Exit code 0 when /readyz of this container answers 200: `python3 ready.py PORT`.

For health checks, which have no curl here. It asks loopback and no proxy, and needs only the
standard library, so that it costs a tenth of a second.
"""

import http.client
import sys

_PATIENCE_S = 3.0


def is_ready(port: int) -> bool:
    """Whether the process behind that port says that it is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_ready(int(sys.argv[1])) else 1)
