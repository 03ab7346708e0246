"""How often the numbers of a topic occur: for proofs that nothing is lost or stored twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow

import forebay


def values(path: Path, topic: str = "t") -> Counter[int]:
    """Return how often each number occurs in a topic, and verify the store."""
    with forebay.open(path, mode="r") as store:
        verified = store.verify()
        assert verified.ok, verified.damage
        if topic not in store.topics:
            return Counter()
        table = pyarrow.table(store.scan(topic))
    return Counter(int(body.as_py()) for body in table["body"])


def once(numbers: range) -> Counter[int]:
    """Return what `values` returns if each of these numbers was stored once."""
    return Counter(numbers)
