"""What the tests of deployments share: the installation that the image would have, made once."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import dockerfile


@pytest.fixture(scope="session")
def clean_venv() -> Iterator[Path]:
    """The virtual environment of the Dockerfile's builder stage, outside of the source tree."""
    # Others than its owner may run it: not below the closed folders of a test.
    home = Path(tempfile.mkdtemp(prefix="tl-install-", dir="/tmp"))
    home.chmod(0o711)
    yield dockerfile.build(home)
    shutil.rmtree(home, ignore_errors=True)
