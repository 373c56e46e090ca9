"""Errors in log lines: which, where, and what we said of them ourselves; never a value.

The text of a foreign error often repeats what it choked on: a prompt, an output, a secret. So of
such an error only its type is told, and of a stack its places, not its values.
"""

import traceback

from threadlog.errors import ModelError, ThreadlogError

_FRAMES_MAX = 32
_CAUSES_MAX = 8


def said(error: BaseException) -> str:
    """The message where it is ours, else the type; what a provider says of a model is not ours."""
    if isinstance(error, ModelError):
        return f"ModelError {error.error_class}"
    return str(error) if isinstance(error, ThreadlogError) else type(error).__name__


def name_of(error: BaseException) -> str:
    """The type, and what is said of it."""
    kind, text = type(error).__name__, said(error)
    return text if text.startswith(kind) else f"{kind}: {text}"


def places_of(error: BaseException) -> list[str]:
    """The innermost frames, outermost first, each `file:line function`."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    return [f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames]


def causes_of(error: BaseException) -> list[BaseException]:
    """The error, what caused it, and so on."""
    found = [error]
    while len(found) < _CAUSES_MAX:
        last = found[-1]
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or cause in found:
            break
        found.append(cause)
    return found


def _short(file: str) -> str:
    """The path below the folder that packages lie in."""
    for folder in ("/site-packages/", "/services/"):
        _, found, rest = file.rpartition(folder)
        if found:
            return rest
    return file.rpartition("/")[2]
