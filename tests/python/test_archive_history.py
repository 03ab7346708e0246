"""What a store records of its archives, and archives of stores restored from a backup."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import archive_support as support
import pytest

import forebay
from forebay.options import FileEngine


@pytest.mark.parametrize("more", [300, 0])
@pytest.mark.parametrize("is_record_kept", [False, True])
def test_an_archive_of_what_a_restored_store_was_is_refused(
    tmp_path: Path, more: int, is_record_kept: bool
) -> None:
    # A store is restored from a backup and goes on: it gives positions again that its archive has.
    path, target, backup = tmp_path / "store", tmp_path / "archive", tmp_path / "backup"

    def send(first: int, count: int, life: bytes) -> None:
        with support.small(path) as store:
            bodies = [b"%s %d" % (life, n) + bytes(5000) for n in range(first, first + count)]
            store.producer("orders", queue=0).send_batch(bodies)

    send(0, 300, b"before")
    shutil.copytree(path, backup)
    if more:
        send(300, more, b"lost")
    with support.small(path) as store:
        store.roll()
        store.archive(target)
    before = support.tree(target)
    note = (path / "forebay.archived").read_bytes()
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    send(300, 300, b"after")
    if is_record_kept:
        (path / "forebay.archived").write_bytes(note)
    with support.small(path) as store:
        store.roll()
        for _ in range(2):
            with pytest.raises(forebay.StoreExistsError, match="restored from a backup") as raised:
                store.archive(target)
        assert raised.value.path == str(target / f"commitlog/{0:020}")
    assert support.tree(target) == before
    # Retention waits, also if it was recorded that this archive has the log.
    kept = {str(target): 0}
    assert (path / "forebay.archived").exists() == is_record_kept
    if is_record_kept:
        assert json.loads((path / "forebay.archived").read_bytes())["targets"] == kept


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
@pytest.mark.parametrize("is_restored", [True, False])
def test_an_archive_that_has_nothing_left_to_compare_is_of_the_store_that_recorded_it(
    tmp_path: Path, engine: FileEngine, is_restored: bool
) -> None:
    # A store is restored from a backup and goes on. Before it is archived, retention deletes all
    # that its archive has, too.
    path, target, backup = tmp_path / "store", tmp_path / "archive", tmp_path / "backup"
    sizes: dict[str, Any] = {"commitlog_file_size": support.FILE}
    if engine == "partitionlog":
        sizes = {"segment_bytes": 16384}

    def send(first: int, count: int) -> None:
        with forebay.open(path, engine=engine, default_queues=4, **sizes) as store:
            bodies = [b"%d" % n + os.urandom(5000) for n in range(first, first + count)]
            store.producer("orders", queue=0).send_batch(bodies)
            store.roll()

    send(0, 10)
    shutil.copytree(path, backup)
    send(10, 300)
    with forebay.open(path) as store:
        store.archive(target)
    before = support.tree(target)
    if is_restored:
        shutil.rmtree(path)
        shutil.copytree(backup, path)
    send(10, 1000)
    keep: dict[str, Any] = {"retention_bytes": 65536, "keep_unconsumed": False, "disk_reserve": 0}
    with forebay.open(path, **keep) as store:
        if engine == "partitionlog":
            store.delete_before("orders", {0: 800})
        while store.topics["orders"].queues[0].min_offset < 700:
            time.sleep(0.01)
        if not is_restored:
            assert store.archive(target).files > 0
            return
        for _ in range(2):
            with pytest.raises(forebay.StoreExistsError, match="nor a record that they are"):
                store.archive(target)
    assert support.tree(target) == before


def test_a_record_of_archives_with_a_damaged_digit_is_not_believed(tmp_path: Path) -> None:
    # Retention removed what the archive did not have.
    path = tmp_path / "events"
    with support.small(path) as store:
        support.fill(store, 3)
        sealed = store.archive(tmp_path / "archive").position
    note = path / "forebay.archived"
    content = note.read_bytes()
    damaged = content.replace(b"%d" % sealed, b"9%d" % sealed)
    assert damaged != content
    note.write_bytes(damaged)
    with support.small(path, retention_bytes=1, keep_unarchived=True) as store:
        while not any("archives" in it.reason for it in store.damage):
            time.sleep(0.01)
        assert not store.archive(tmp_path / "archive").recorded
        assert store.stats().min_position == 0
        assert note.read_bytes() == damaged
        # Without a checksum, what a user has written is believed.
        note.write_text(json.dumps({"targets": {str(tmp_path / "archive"): sealed}}))
        while store.stats().min_position < sealed:
            time.sleep(0.01)
        assert store.archive(tmp_path / "archive").recorded
    assert note.read_bytes() == content
