"""What holds for every test of Python: how Java starts, what is logged, which files come first."""

import gc
import logging
import os
import signal

import harness
import jvm
import pytest

#: Files that take a minute and more. They begin first: the last of them would be waited for.
LONG = (
    "test_spark_stream_kill",
    "test_kills",
    "test_power",
    "test_forebay",
    "test_spark_cluster",
    "test_calls",
    "test_package",
)


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
    """Have no collection of garbage look at the tests and at what they import: it stays."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have whoever runs tests side by side keep files whole, and begin with the long ones.

    A session of Spark takes long to start and to warm up, so the files that use one are two groups.
    """
    with_session = {item.path: None for item in items if "spark" in item.fixturenames}
    groups = {path: f"spark-{number % 2}" for number, path in enumerate(with_session)}
    places = {name: place for place, name in enumerate((*LONG, "spark-0", "spark-1"))}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups.get(item.path, item.path.stem)))
    items.sort(
        key=lambda item: places.get(item.path.stem, places.get(groups.get(item.path), len(places)))
    )
