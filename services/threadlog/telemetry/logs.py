"""Log lines as JSON: one object a line, with what it is about, without a word of a payload.

All loggers of the process pass here, those of libraries, too. Every line has `time`, `level`,
`logger`, `message`, `service` and `instance`, and as far as it is known `tenant`, `thread`, `seq`,
`trace_id` and `span_id`. An error has `error` and `stack`, as `failures` tells them.
"""

import logging
from datetime import UTC, datetime

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger

from threadlog.telemetry import scope
from threadlog.telemetry.failures import causes_of, name_of, places_of


def json_formatter() -> logging.Formatter:
    """What makes one line of a record."""
    return ProcessorFormatter(
        foreign_pre_chain=[_marked],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )


def _marked(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """The members of a line, in the order in which people look for them."""
    record: logging.LogRecord = line["_record"]
    made: dict[str, object] = {
        "time": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": line["event"],
        **scope.marks(),
    }
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        made["error"] = [name_of(each) for each in causes_of(error)]
        made["stack"] = places_of(error)
    # What the renderer takes away again.
    made["_record"], made["_from_structlog"] = record, line["_from_structlog"]
    return made
