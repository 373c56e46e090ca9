"""Every error of the OpenAI SDK and of its HTTP client as a ModelError.

Their own texts are not repeated: some hold header values or parts of a key.
"""

import ssl

import anyio
import httpx2
import openai

from threadlog.adapters.model_api.failures import failure_of_error, failure_of_status, malformed
from threadlog.errors import ModelError
from threadlog.events.step import ErrorClass

FOREIGN_ERRORS = (
    openai.OpenAIError,
    httpx2.HTTPError,
    httpx2.StreamError,
    httpx2.InvalidURL,
    ssl.SSLError,
    anyio.EndOfStream,
)
"""What a request may raise besides ModelError; other exceptions are bugs of ours."""


def failure_of_exception(error: Exception, *, now_ms: int) -> ModelError:
    """The failure that an SDK or HTTP exception means.

    Shapes:  the SDK wraps what the HTTP client raises until the response has begun; what comes
             bare was raised while its body was read.
    """
    match error:
        case openai.APIStatusError():
            body = error.response.text if error.response.is_closed else ""
            return failure_of_status(error.status_code, body, error.response.headers, now_ms)
        case openai.APIConnectionError():
            return _of_transport(error.__cause__, has_begun=False)
        case openai.APIResponseValidationError():
            return malformed("the reply does not have the shape of one")
        case openai.ContentFilterFinishReasonError():
            return _failure("refused", "the provider's content filter refused the request")
        case openai.LengthFinishReasonError():
            return malformed("the reply was cut by its length limit")
        case openai.WebSocketConnectionClosedError() | openai.WebSocketQueueFullError():
            return _failure("connection", "the connection to the provider broke", retryable=True)
        case openai.APIError():
            return failure_of_error(error.body)
        case openai.OpenAIError():
            return _failure("unauthenticated", "no usable credentials: set OPENAI_API_KEY")
        case _:
            return _of_transport(error, has_begun=True)


def _of_transport(error: BaseException | None, *, has_begun: bool) -> ModelError:
    match error:
        case httpx2.ReadTimeout():
            return _failure("idle", "the provider sent nothing for too long", retryable=True)
        case httpx2.ConnectTimeout():
            return _failure("connection", "the provider's address does not answer", retryable=True)
        case httpx2.TimeoutException():
            return _failure("timeout", "sending the request took too long", retryable=True)
        case httpx2.DecodingError():
            return malformed("the reply's compression is broken")
        case httpx2.UnsupportedProtocol() | httpx2.InvalidURL() | httpx2.LocalProtocolError():
            return _failure(
                "bad_request", "no request can be sent so: check OPENAI_BASE_URL and OPENAI_API_KEY"
            )
        case httpx2.TooManyRedirects():
            return _failure("bad_request", "the address redirects for ever: set OPENAI_BASE_URL")
        case httpx2.StreamError():
            return _failure("internal", "the response was read wrongly, which is a bug here")
        case _ if has_begun:
            return _failure("cut_stream", "the connection broke within the reply", retryable=True)
        case _:
            advice = "cannot connect to the provider: is OPENAI_BASE_URL right, is its server up?"
            return _failure("connection", advice, retryable=True)


def _failure(error_class: ErrorClass, message: str, *, retryable: bool = False) -> ModelError:
    return ModelError(message, error_class=error_class, retryable=retryable)
