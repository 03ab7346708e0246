"""Fixtures for all tests: a store of every engine."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from meanings import MEANINGS, Meanings

import forebay

ENGINES = list(MEANINGS)

Open = Callable[..., forebay.Store]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Name of an engine: a test that uses it, or a store, runs once per engine."""
    return str(request.param)


@pytest.fixture
def meanings(engine: str) -> Meanings:
    """Return what differs between the engine and others."""
    return MEANINGS[engine]


@pytest.fixture
def open_store(engine: str, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens small stores of the engine; they are closed at the end."""
    opened: list[forebay.Store] = []

    def open_one(**options: Any) -> forebay.Store:
        if engine == "memory":
            path = ":memory:"
        else:
            path = str(tmp_path / f"store-{len(opened)}")
            options["engine"] = engine
            if engine == "commitlog":
                options.setdefault("commitlog_file_size", 16 << 20)
        opened.append(forebay.open(path, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> forebay.Store:
    """Return an empty store."""
    return open_store()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Collect no garbage: Python ignores a Ctrl-C that meets a callback of the collector.

    Hypothesis has such a callback.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a closed store with three messages in queue 0 of ``orders``."""
    path = tmp_path / "closed"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        store.producer("orders", queue=0).send_batch([b"a", b"b", b"c"], keys=["1", "2", "3"])
    return path
