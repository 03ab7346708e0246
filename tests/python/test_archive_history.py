"""Archives of commit logs that were restored from a backup."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import archive_support as support
import pytest

import forebay


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
        assert json.loads((path / "forebay.archived").read_bytes()) == {"targets": kept}
