"""What holds for every test of Python: how Java starts, what is logged, what runs side by side."""

import gc
import logging
import os
import signal
from pathlib import Path
from typing import Any

import harness
import jvm
import pytest
from xdist.scheduler import LoadFileScheduling

#: Files that take a minute or more. They begin first, since a long file at the end delays the run.
LONG = (
    "test_spark_stream_kill",
    "test_kills",
    "test_power",
    "test_forebay",
    "test_spark_cluster",
    "test_calls",
    "test_package",
)

#: The folder whose files use one session of Spark, which takes long to start and to warm up.
SPARK = "spark"


def pytest_configure() -> None:
    """Start Java as `jvm` says, and handle Ctrl-C as Python does, however this process was started.

    A shell makes a command in the background ignore SIGINT, which some tests send. A store also
    warns of a slow disk; a test of that warning uses a separate process.
    """
    os.environ.update(jvm.environment())
    logging.getLogger("forebay").addFilter(lambda record: not record.msg.startswith(harness.SLOW))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exclude the tests and their imports, which are never freed, from garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long."""
    places = {unit: place for place, unit in enumerate((*LONG, SPARK))}
    items.sort(key=lambda item: places.get(_unit(item.path), len(places)))


class _Scheduling(LoadFileScheduling):
    """Gives all tests of a file to one worker, since a file's fixtures take long to prepare."""

    def _split_scope(self, nodeid: str) -> str:
        return _unit(Path(super()._split_scope(nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)


def _unit(path: Path) -> str:
    """Name the unit that one worker runs: a file, or all files that use the session of Spark."""
    shares = path.parent.name == SPARK and path.stem not in LONG
    return SPARK if shares else path.stem
