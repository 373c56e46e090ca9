"""What is left of the settings when some are wrong: a doctor goes on with the rest."""

import os

from threadlog.errors import UsageError
from threadlog.settings import Settings, load_settings
from threadlog.settings_parts import SettingError


def salvage_settings() -> tuple[Settings, tuple[str, ...]]:
    """What is left of the settings without the variables that are wrong, and what is wrong.

    Effects: those variables are not in the environment for a moment. For one thread.
    """
    wrong: list[str] = []
    aside: dict[str, str] = {}
    try:
        while True:
            try:
                return load_settings(), tuple(wrong)
            except UsageError as error:
                wrong.append(str(error))
                name = error.variable if isinstance(error, SettingError) else ""
                if name not in os.environ:
                    # Several that do not fit together: which one is meant cannot be known.
                    return Settings.model_construct(), tuple(wrong)
                aside[name] = os.environ.pop(name)
    finally:
        os.environ.update(aside)
