"""Stores left by an earlier release, closed, killed or damaged: every message stays readable.

`tests/golden/forebay-0.1.0` has the stores, each with the list of acknowledged messages.
"""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import golden_stores
import pytest
import store_files

import forebay
from forebay import _forebay

GOLDEN = golden_stores.GOLDEN / "forebay-0.1.0"
NAMES = sorted(file.name.removesuffix(".tar.gz") for file in GOLDEN.glob("*.tar.gz"))
#: Number of rows in an atomic batch, and in the commit that was staged but not processed.
ROWS, STAGED = 5, 10
#: Offsets in the state page of the boot id, the settled end, and the file's identity.
BOOT_ID, SETTLED, IDENTITY = slice(16, 32), 384, slice(456, 496)

Row = dict[str, Any]
Place = tuple[str, int, int]


def unpack(name: str, folder: Path) -> tuple[Path, dict[Place, Row]]:
    """Unpack a store; return its directory, and the acknowledged messages by place."""
    path = golden_stores.unpack(name, folder, GOLDEN)
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return path, {(row["topic"], row["queue"], row["offset"]): row for row in rows}


def messages(store: forebay.Store) -> dict[Place, forebay.Message]:
    """Read all queues that users made; the records around atomic batches are in none of them."""
    found = {}
    for name, topic in store.topics.items():
        for queue in topic.queues:
            at = queue.min_offset
            while at < queue.max_offset and not name.startswith("rmq_sys"):
                batch = store.read(name, queue.id, at, max_messages=1_000)
                found.update({(name, queue.id, it.offset): it for it in batch.messages})
                at = batch.next_offset
    return found


def holds(store: forebay.Store, rows: dict[Place, Row]) -> dict[Place, forebay.Message]:
    """Check that a store shows all rows, by place and by key, and atomic batches complete."""
    found = messages(store)
    for place, row in rows.items():
        it = found[place]
        told = (it.body.decode(), list(it.keys), it.tags, dict(it.properties))
        assert told == (row["body"], [row["key"]], row["tags"], row["properties"]), place
        hits = store.query(row["topic"], row["key"])
        assert [(hit.queue, hit.offset) for hit in hits] == [place[1:]], place
    batches: dict[str, list[Place]] = {}
    for place, it in found.items():
        if it.properties.get("batch"):
            batches.setdefault(it.properties["batch"], []).append(place)
    for number, places in batches.items():
        # Retention may have deleted the file with its first rows.
        topic, queue, first = min(places)
        retired = store.topics[topic].queues[queue].min_offset == first > 0
        assert len(places) == ROWS or retired, f"batch {number}: {places}"
    return found


def in_order(store: forebay.Store) -> bool:
    return store.verify().ok and not store.damage


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_an_earlier_release_is_read_unchanged(tmp_path: Path, name: str) -> None:
    root, rows = unpack(name, tmp_path)
    assert len(rows) > 100
    before = store_files.fingerprints(root)
    with forebay.open(root, "r") as store:
        found = holds(store, rows)
        # Nothing is changed, so the index still points to the torn record.
        assert in_order(store) == (name not in ("repairing", "torn"))
    assert store_files.fingerprints(root) == before
    assert len(found) == len(rows) or name.startswith(("killed", "unsettled"))


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_an_earlier_release_is_written_without_loss(tmp_path: Path, name: str) -> None:
    root, rows = unpack(name, tmp_path)
    with forebay.open(root) as store:
        assert store.recovery.clean == (name == "closed")
        if name == "repairing":
            # The interrupted repair is repeated.
            assert store.repair().steps
        _forebay.take_commits(store)
        before = holds(store, rows)
        assert in_order(store) or name == "repairing"
        ends: dict[tuple[str, int], int] = {}
        for topic, queue, offset in before:
            ends[topic, queue] = max(ends.get((topic, queue), 0), offset + 1)
        added = {}
        for (topic, queue), end in ends.items():
            for offset in (end, end + 1):
                text = f"{topic} {queue} {offset}"
                sent = store.send(topic, text.encode(), queue=queue, key=text.replace(" ", "-"))
                # Offsets continue where they ended.
                assert (sent.queue, sent.offset) == (queue, offset)
                words = {"body": text, "key": text.replace(" ", "-"), "tags": None}
                added[topic, queue, offset] = {"topic": topic, "properties": {}, **words}
        staged = [place for place in before if place[0] == "staged"]
        assert len(staged) == (STAGED if name == "closed" else 0)
    for mode in ("r", "a", "r"):
        with forebay.open(root, mode) as store:
            assert store.recovery.clean
            found = holds(store, rows | added)
            assert found.keys() == before.keys() | added.keys()
            assert in_order(store)


@pytest.mark.parametrize("name", ["killed", "killed-sync", "unsettled"])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_state_page_without_an_identity_is_no_proof_of_the_page_cache(
    tmp_path: Path, name: str, mode: str
) -> None:
    """Even within the boot that the state page names, recovery starts at the last full pass.

    Here the page cache is lost, and with it all queue and index entries after that pass.
    """
    root, rows = unpack(name, tmp_path)
    with open(root / "forebay.state", "r+b") as file:
        page = file.read()
        assert page[IDENTITY] == bytes(40)
        file.seek(BOOT_ID.start)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        file.write(bytes.fromhex(boot.strip().replace("-", "")))
    (pass_end,) = struct.unpack_from("=Q", page, SETTLED)
    if not pass_end:
        for folder in ("consumequeue", "index"):
            for file in (root / folder).rglob("*"):
                if file.is_file():
                    file.write_bytes(bytes(file.stat().st_size))
    with forebay.open(root, mode) as store:
        assert store.recovery.walked_from <= pass_end
        assert store.recovery.records_checked
        holds(store, rows)
        assert in_order(store)
