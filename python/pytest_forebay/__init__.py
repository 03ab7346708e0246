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
    """Yield an empty store whose clock is `forebay_clock`; it is closed after the test.

    It is in memory and has one queue per topic. Indirect parametrisation sets other options of
    `forebay.open`: ``{"engine": "commitlog"}`` and ``{"engine": "partitionlog"}`` are stores on
    disk, in a directory of the test.
    """
    from forebay._forebay import EngineKind
    from forebay.testing import open

    given = getattr(request, "param", {})
    if not isinstance(given, dict):
        raise TypeError(f"forebay_store takes a dict of options, got {type(given).__name__}")
    for name in ("path", "clock"):
        if name in given:
            raise TypeError(f"forebay_store has its own {name}: leave it out of the options")
    options: dict[str, Any] = {"default_queues": 1, **given}
    engine = options.get("engine", "memory")
    kind = EngineKind("commitlog" if engine is None else engine)
    path: Any = ":memory:"
    if kind.keeps_files:
        path = request.getfixturevalue("tmp_path") / "forebay"
    if kind.has_one_log:
        options.setdefault("commitlog_file_size", 16 << 20)
    with open(path, clock=forebay_clock, **options) as store:
        yield store
