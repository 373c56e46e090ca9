"""Every error of the OpenAI SDK and of its HTTP client as a ModelError.

Their own texts are not repeated: some hold header values or parts of a key.
"""

import openai

from threadlog.adapters.model_api.failures import failure_of_error, failure_of_status, malformed
from threadlog.adapters.model_api.providers import OPENAI
from threadlog.adapters.model_api.transport_failures import (
    TRANSPORT_ERRORS,
    failure_of_transport,
    plain_failure,
)
from threadlog.errors import ModelError

FOREIGN_ERRORS = (openai.OpenAIError, *TRANSPORT_ERRORS)
"""What a request may raise besides ModelError; other exceptions are bugs of ours."""


def failure_of_exception(error: Exception, *, now_ms: int) -> ModelError:
    """The failure that an SDK or HTTP exception means.

    Shapes:  the SDK wraps what the HTTP client raises until the response has begun; what comes
             bare was raised while its body was read.
    """
    match error:
        case openai.APIStatusError():
            response = error.response
            body = response.text if response.is_closed else ""
            return failure_of_status(error.status_code, body, response.headers, now_ms, OPENAI)
        case openai.APIConnectionError():
            return failure_of_transport(error.__cause__, OPENAI, has_begun=False)
        case openai.APIResponseValidationError():
            return malformed("the reply does not have the shape of one")
        case openai.ContentFilterFinishReasonError():
            return plain_failure("refused", "the provider's content filter refused the request")
        case openai.LengthFinishReasonError():
            return malformed("the reply was cut by its length limit")
        case openai.WebSocketConnectionClosedError() | openai.WebSocketQueueFullError():
            text = "the connection to the provider broke"
            return plain_failure("connection", text, retryable=True)
        case openai.APIError():
            return failure_of_error(error.body, OPENAI)
        case openai.OpenAIError():
            return plain_failure("unauthenticated", "no usable credentials: set OPENAI_API_KEY")
        case _:
            return failure_of_transport(error, OPENAI, has_begun=True)
