"""What each provider is called to the person who set it up, and what its error types stand for.

Pure data: failures of both providers are told apart by it alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """One provider.

    Shapes:  `key_name`, `url_name`: the variables that hold key and address; `url_end`: how an
             address usually ends. `status_of_type`: the HTTP status that a type of error means
             where the status itself does not say, as within a stream that began well.
    """

    key_name: str
    url_name: str
    url_end: str
    status_of_type: Mapping[str, int] = field(default_factory=dict)


OPENAI = ProviderFacts("OPENAI_API_KEY", "OPENAI_BASE_URL", "usually ends in /v1")
ANTHROPIC = ProviderFacts(
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "has no /v1 at its end",
    {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "billing_error": 402,
        "permission_error": 403,
        "not_found_error": 404,
        "timeout_error": 408,
        "conflict_error": 409,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "api_error": 500,
        "overloaded_error": 529,
    },
)
