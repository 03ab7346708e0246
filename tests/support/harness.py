"""Settings of all harnesses: how long they run, from which seed, and what they may skip."""

from __future__ import annotations

import os
import time
from typing import NoReturn

import pytest

#: Whether the long form of a test is requested, as by ``make proof``.
PROOF = "FOREBAY_PROOF" in os.environ

#: A time, in seconds, that nothing here needs, however busy the machine; below any test's limit.
LONG_S = 300.0

#: The warning of a store that its disk is slow; it is not a failure.
SLOW = ("slow put: ", "slow flush: ")

#: What this machine is declared to have; a test that needs it must not be skipped.
REQUIRED = frozenset(filter(None, os.environ.get("CI_REQUIRES", "").split(",")))
#: The names that ``CI_REQUIRES`` may contain.
NAMES = frozenset(
    ("root", "loop", "tmpfs", "xfs", "cc", "gunicorn", "maven", "chromium", "wheel", "fish", "zsh")
)


def seed(otherwise: int | None = None) -> int:
    """Return ``FOREBAY_SEED``; if unset, ``otherwise``, or a random number for this run."""
    given = os.environ.get("FOREBAY_SEED")
    if given is not None:
        return int(given)
    return time.time_ns() % 10**6 if otherwise is None else otherwise


def lacks(name: str, reason: str) -> NoReturn:
    """End a test that the machine cannot run: fail if ``CI_REQUIRES`` names what is missing.

    Otherwise skip it, with the reason.
    """
    assert name in NAMES, name
    if name in REQUIRED:
        pytest.fail(f"CI_REQUIRES names {name}, but {reason}")
    pytest.skip(reason)
