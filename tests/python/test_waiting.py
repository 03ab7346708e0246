"""Waiting for the lock of a store."""

import signal
import threading
from datetime import timedelta

import pytest

import forebay

@pytest.fixture
def interrupt():
    """Return a function that has Ctrl-C pressed while the caller goes on."""
    pressers = []

    def press():
        main = threading.main_thread().ident
        pressers.append(threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT)))
        pressers[-1].start()

    yield press
    for presser in pressers:
        presser.join()


def test_opening_waits_for_the_lock_as_long_as_it_is_told(directory):
    first = forebay.open(directory)
    for refused in ({}, {"lock_timeout": 0}, {"lock_timeout": 0.12}):
        with pytest.raises(forebay.StoreLockedError, match="lock_timeout"):
            forebay.open(directory, **refused)
    closer = threading.Thread(target=first.close)
    closer.start()
    with forebay.open(directory, lock_timeout=timedelta(minutes=5)) as second:
        assert second.recovery.clean
    closer.join()
    with pytest.raises(forebay.InvalidOptionError):
        forebay.open(directory, lock_timeout=-1)


def test_ctrl_c_ends_the_waiting_for_the_lock(directory, interrupt):
    with forebay.open(directory), pytest.raises(KeyboardInterrupt):  # noqa: PT012 - either raises
        interrupt()
        forebay.open(directory, lock_timeout=timedelta(days=1))
