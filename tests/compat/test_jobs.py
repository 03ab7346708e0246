"""The real RocketMQ opens what the Spark job `rebuild` has built."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import rocketmq
from rocketmq import Job
from workload import OPTIONS, SIZES, fill, rows_in, rows_of

import forebay

pytest.importorskip("pyspark")


def test_rocketmq_opens_what_was_rebuilt_and_finds_every_message_and_key(tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    from forebay.spark import rebuild

    path = tmp_path / "store"
    with forebay.open(path, **OPTIONS) as store:
        fill(store)
        expected = rows_of(store)
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index")
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    try:
        done = rebuild(spark, path)
    finally:
        spark.stop()
    assert done.queue_entries > 0
    assert done.index_entries > 0
    [listing] = rocketmq.list_stores([Job(path, sizes=SIZES)])
    assert isinstance(listing, rocketmq.Listing), listing
    assert (listing.errors, listing.cut) == ((), 0)
    assert listing.deleted_files == ()
    assert listing.keys_checked > 500
    assert listing.keys_missed == 0
    assert rows_in(listing) == expected
