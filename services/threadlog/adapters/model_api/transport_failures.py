"""Every error of the HTTP client that both SDKs send with, as a ModelError.

Their own texts are not repeated: some hold header values or parts of a key.
"""

import ssl

import anyio
import httpx2

from threadlog.adapters.model_api.failures import malformed
from threadlog.adapters.model_api.providers import ProviderFacts
from threadlog.errors import ModelError
from threadlog.events.step import ErrorClass

TRANSPORT_ERRORS = (
    httpx2.HTTPError,
    httpx2.StreamError,
    httpx2.InvalidURL,
    ssl.SSLError,
    anyio.EndOfStream,
)
"""What the HTTP client may raise while it sends or reads."""


def failure_of_transport(
    error: BaseException | None, facts: ProviderFacts, *, has_begun: bool
) -> ModelError:
    """The failure that an error of the HTTP client means; `has_begun`: within the response."""
    match error:
        case httpx2.ReadTimeout():
            return plain_failure("idle", "the provider sent nothing for too long", retryable=True)
        case httpx2.ConnectTimeout():
            text = "the provider's address does not answer"
            return plain_failure("connection", text, retryable=True)
        case httpx2.TimeoutException():
            return plain_failure("timeout", "sending the request took too long", retryable=True)
        case httpx2.DecodingError():
            return malformed("the reply's compression is broken")
        case httpx2.UnsupportedProtocol() | httpx2.InvalidURL() | httpx2.LocalProtocolError():
            names = f"{facts.url_name} and {facts.key_name}"
            return plain_failure("bad_request", f"no request can be sent so: check {names}")
        case httpx2.TooManyRedirects():
            text = f"the address redirects for ever: set {facts.url_name}"
            return plain_failure("bad_request", text)
        case httpx2.StreamError():
            return plain_failure("internal", "the response was read wrongly, which is a bug here")
        case _ if has_begun:
            text = "the connection broke within the reply"
            return plain_failure("cut_stream", text, retryable=True)
        case _:
            text = f"cannot connect to the provider: is {facts.url_name} right, is its server up?"
            return plain_failure("connection", text, retryable=True)


def plain_failure(error_class: ErrorClass, message: str, *, retryable: bool = False) -> ModelError:
    """A failure that the provider itself says nothing about."""
    return ModelError(message, error_class=error_class, retryable=retryable)
