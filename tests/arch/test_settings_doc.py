"""Every setting is in docs/settings.md, and nothing else that looks like one."""

import re
from pathlib import Path

from threadlog.settings import Settings, _names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_every_setting_is_documented_and_no_other() -> None:
    written = set(re.findall(r"\| `(THREADLOG_[A-Z_]+)` \|", PAGE.read_text()))
    assert written == set(_names(Settings, "THREADLOG_"))
