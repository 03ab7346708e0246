"""Skips the tests of this folder if the real RocketMQ and the real Kafka are not available."""

import maven
import pytest
from harness import lacks


@pytest.fixture(scope="session", autouse=True)
def _needs_maven() -> None:
    if reason := maven.unavailable():
        lacks("maven", reason)
