"""Streams that write a store: what is appended when checkpoints, stores or rows come again."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter

from pyspark.errors import StreamingQueryException

import forebay
from forebay.spark import ForebayDataSource


def counts(path):
    """Return how often each number is in the log, which must be intact."""
    with forebay.open(path, mode="r") as store:
        verified = store.verify()
        assert verified.ok, verified.damage
        read = store.tail("t", "earliest", follow=False)
        return Counter(int(message.body) for message in read)


def test_of_two_queries_with_one_checkpoint_the_second_fails_or_appends_its_own_rows(
    spark, tmp_path
):
    """A copied checkpoint makes two queries one: each numbers its next batch as the other does."""
    spark.dataSource.register(ForebayDataSource)
    path = tmp_path / "store"
    forebay.open(path).close()

    folder, files = tmp_path / "rows", {"one": [], "other": []}

    def run(name, numbers=(), conflict="fail"):
        """Write a query's next numbers, until it has no more; return its error."""
        files[name] += [numbers] if numbers else []
        # The checkpoint names the folder, so both have the same one, each with its own files.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for some in files[name]:
            (folder / f"{some[0]}.txt").write_text("".join(f"{it}\n" for it in some))
        writer = spark.readStream.text(str(folder)).writeStream.format("forebay")
        writer = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        writer = writer.option("topic", "t").option("batchConflict", conflict)
        query = writer.trigger(availableNow=True).start(str(path))
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()
        return query.exception()

    assert run("one", range(10)) is None
    shutil.copytree(tmp_path / "one-checkpoint", tmp_path / "other-checkpoint")
    assert run("one", range(10, 20)) is None
    # Both write batch 1; the log holds the first one's.
    assert "batchConflict" in str(run("other", range(20, 30)))
    assert counts(path) == Counter(range(20))
    # Neither a further batch of the first query nor a restart of the second changes that.
    assert run("one", range(30, 40)) is None
    assert "batchConflict" in str(run("other"))
    assert counts(path) == Counter([*range(20), *range(30, 40)])
    assert run("other", conflict="append") is None
    assert counts(path) == Counter(range(40))
    # Spark forgets that the first query's last batch is done, and runs it again.
    for name in ("2", ".2.crc"):
        (tmp_path / "one-checkpoint" / "commits" / name).unlink(missing_ok=True)
    assert run("one") is None
    assert counts(path) == Counter(range(40))
    assert run("one", range(40, 50)) is None
    assert counts(path) == Counter(range(50))
