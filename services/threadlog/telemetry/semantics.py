"""The names of spans and attributes, all of them: what is not here is in no span.

GenAI names follow the OpenTelemetry semantic conventions for generative AI, still in development:
those of `opentelemetry-semantic-conventions` 0.66b2 (schema 1.37 and later). A newer revision is
taken here, and only here. HTTP names are stable. Ours begin with `threadlog.`.

Content capture is off and cannot be turned on: no name here stands for a prompt, a command, an
argument, an output or the text of an error.
"""

from typing import Final

INVOKE_AGENT: Final = "invoke_agent"
ASK_MODEL: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
PLAN: Final = "plan"
APPEND: Final = "append"
PROJECT: Final = "project"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
AGENT_NAME: Final = "gen_ai.agent.name"
THREAD_AS_GEN_AI: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

ERROR_TYPE: Final = "error.type"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"

SERVICE: Final = "threadlog.service"
TENANT: Final = "threadlog.tenant"
THREAD: Final = "threadlog.thread"
TURN: Final = "threadlog.turn"
SEQ: Final = "threadlog.seq"
STEP: Final = "threadlog.step"
ATTEMPT: Final = "threadlog.attempt"
OUTCOME: Final = "threadlog.outcome"
EXIT_CODE: Final = "threadlog.exit_code"
STEPS: Final = "threadlog.steps"
EVENTS: Final = "threadlog.events"
TYPES: Final = "threadlog.event_types"
