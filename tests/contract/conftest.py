"""The suites are modules of their own, and their assertions explain themselves too."""

import pytest

pytest.register_assert_rewrite(
    "tests.contract.log_suite",
    "tests.contract.views_suite",
    "tests.contract.usage_suite",
    "tests.contract.snapshots_suite",
    "tests.contract.blobs_suite",
    "tests.contract.notify_suite",
)
