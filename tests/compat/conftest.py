"""Skips the tests of this folder if RocketMQ is not available."""

import pytest
import rocketmq
from harness import lacks


@pytest.fixture(scope="session", autouse=True)
def _needs_rocketmq() -> None:
    if reason := rocketmq.unavailable():
        lacks("maven", reason)
