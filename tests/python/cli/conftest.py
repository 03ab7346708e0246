"""Fixtures for the command-line tests."""

from pathlib import Path

import pytest
from cli_support import Run
from golden_stores import unpack

import forebay
from forebay.cli import main


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Return a function that runs a command line and returns status, output and error output."""

    def run_one(*arguments: object) -> tuple[int, bytes, str]:
        status = main([str(argument) for argument in arguments])
        found = capfdbinary.readouterr()
        return status, found.out, found.err.decode()

    return run_one


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the directory of a store with five messages in one topic and one in another."""
    path = tmp_path / "store"
    with forebay.open(
        path, commitlog_file_size=1 << 20, index_slots=100, index_entries=100
    ) as store:
        orders = store.producer("orders", queue=0)
        for number in range(4):
            orders.send(
                f"body {number}".encode(), key=f"k{number}", tags=("even", "odd")[number % 2]
            )
        store.send("orders", b"\xff\x00", queue=1, keys=["a", "k1"], properties={"region": "eu"})
        store.send("bills", 'caf\u00e9, "5"\n'.encode(), queue=2)
    return path


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """Return a directory written by a real broker."""
    return unpack("broker", tmp_path)
