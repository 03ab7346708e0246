"""The fixtures of `forebay.testing`, which pytest finds by the entry point of this module.

pytest imports it in every run of an environment that has Forebay, so it imports Forebay only for a
test that asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from forebay import Store
    from forebay.testing import Clock


@pytest.fixture
def forebay_clock() -> Clock:
    """Return the clock of `forebay_store`: it stands still until ``advance(seconds)`` moves it."""
    from forebay.testing import Clock

    return Clock()


@pytest.fixture
def forebay_store(request: pytest.FixtureRequest, forebay_clock: Clock) -> Iterator[Store]:
    """Yield an empty store that goes by `forebay_clock`; it is closed after the test.

    It is in memory and has one queue per topic. Indirect parametrisation sets other options of
    `forebay.open`: ``{"engine": "commitlog"}`` is a store on disk, in a directory of the test.
    """
    from forebay.testing import open

    options: dict[str, Any] = {"default_queues": 1} | getattr(request, "param", {})
    path: Any = ":memory:"
    if options.get("engine", "memory") != "memory":
        path = request.getfixturevalue("tmp_path") / "forebay"
        options.setdefault("commitlog_file_size", 16 << 20)
    with open(path, clock=forebay_clock, **options) as store:
        yield store
