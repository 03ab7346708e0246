"""What every harness asks first: how long it runs, from which seed, and what it may do without."""

from __future__ import annotations

import os
import time
from typing import NoReturn

import pytest

#: Whether the long form of a test is wanted, as in ``make proof``.
PROOF = "FOREBAY_PROOF" in os.environ

#: Seconds that nothing here takes, however busy the machine is. The limit of a test is longer.
LONG_S = 300.0

#: How a store says that its disk is slow, which is nobody's fault.
SLOW = ("slow put: ", "slow flush: ")

#: What this machine is said to have, so that no test may be skipped for want of it.
REQUIRED = frozenset(filter(None, os.environ.get("CI_REQUIRES", "").split(",")))
#: What ``CI_REQUIRES`` may name.
NAMES = frozenset(("root", "loop", "tmpfs", "xfs", "cc", "maven"))


def seed(otherwise: int | None = None) -> int:
    """Return ``FOREBAY_SEED``; without it ``otherwise``, or a number drawn for this run alone."""
    given = os.environ.get("FOREBAY_SEED")
    if given is not None:
        return int(given)
    return time.time_ns() % 10**6 if otherwise is None else otherwise


def lacks(name: str, reason: str) -> NoReturn:
    """End a test that the machine cannot run: it fails where ``CI_REQUIRES`` names what is missing.

    Elsewhere it is skipped with the reason.
    """
    assert name in NAMES, name
    if name in REQUIRED:
        pytest.fail(f"CI_REQUIRES names {name}, but {reason}")
    pytest.skip(reason)
