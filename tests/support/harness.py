"""Settings of all harnesses: how long they run, from which seed, and what they may skip."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path
from typing import NoReturn

import pytest

#: Whether the long form of a test is requested, as by ``make proof``.
PROOF = "FOREBAY_PROOF" in os.environ
if PROOF:
    # No test has a limit, as in ``make proof``; pytest looks at it later.
    os.environ.setdefault("PYTEST_TIMEOUT", "0")

#: A random number that all processes of a run have.
DRAWN = int(os.environ.setdefault("FOREBAY_DRAWN", str(time.time_ns() % 10**6)))

#: A timeout in seconds that is never reached, however busy the machine; below any test's limit.
LONG_S = 300.0

#: The warning of a store that its disk is slow; it is not a failure.
SLOW = ("slow put: ", "slow flush: ")

#: What this machine is declared to have; a test that needs it must not be skipped.
REQUIRED = frozenset(filter(None, os.environ.get("CI_REQUIRES", "").split(",")))
#: The names that ``CI_REQUIRES`` may contain.
NAMES = frozenset(
    [
        *("root", "loop", "tmpfs", "xfs", "cc", "maven", "chromium", "wheel"),
        *("curl", "gunicorn", "fish", "zsh", "memlock"),
    ]
)


def seed(otherwise: int | None = None) -> int:
    """Return ``FOREBAY_SEED``; if unset, ``otherwise``, or a random number for this run."""
    given = os.environ.get("FOREBAY_SEED")
    if given is not None:
        return int(given)
    return DRAWN if otherwise is None else otherwise


def state_of(process: int) -> str:
    """Return the state of a process, as in ``/proc``: ``S`` sleeps, ``T`` is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def parse_part(text: str) -> tuple[int, int]:
    """Return k and n of ``k/n``: piece k, from 1 on, of the n pieces of a long form."""
    number, _, pieces = text.partition("/")
    if not (number.isdecimal() and pieces.isdecimal() and 1 <= int(number) <= int(pieces)):
        raise ValueError(f"FOREBAY_PART must be k/n with k from 1 to n, got {text!r}")
    return int(number), int(pieces)


#: Which piece of the cases of each divisible test runs: ``FOREBAY_PART``.
PART = parse_part(os.environ.get("FOREBAY_PART", "1/1"))


def part(count: int) -> range:
    """Return the numbers below ``count`` that belong to this piece."""
    number, pieces = PART
    return range(count * (number - 1) // pieces, count * number // pieces)


def in_part(name: str) -> bool:
    """Return whether a case belongs to this piece.

    The name decides: the number of a case differs between runs if timers add cases.
    """
    number, pieces = PART
    return zlib.crc32(name.encode()) % pieces == number - 1


def lacks(name: str, reason: str) -> NoReturn:
    """End a test that the machine cannot run: fail if ``CI_REQUIRES`` names what is missing.

    Otherwise skip it, with the reason.
    """
    assert name in NAMES, name
    if name in REQUIRED:
        pytest.fail(f"CI_REQUIRES names {name}, but {reason}")
    pytest.skip(reason)
