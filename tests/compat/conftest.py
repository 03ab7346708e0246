"""What every test here needs."""

import pytest
import rocketmq
from harness import lacks


@pytest.fixture(scope="session", autouse=True)
def _needs_rocketmq() -> None:
    if reason := rocketmq.unavailable():
        lacks("maven", reason)
