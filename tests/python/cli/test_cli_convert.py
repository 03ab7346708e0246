"""The verb convert."""

import json

import pytest
from cli_support import Run
from kafka_batches import write

import forebay


def test_the_verb_converts_and_prints_the_names(run: Run, tmp_path):
    write(tmp_path / "logs" / "a.b-0", [[(7, b"k", b"x", []), (8, b"k", None, [])]])
    status, out, err = run(
        "convert", tmp_path / "logs", tmp_path / "events", "--engine", "commitlog"
    )
    assert (status, err) == (0, "")
    assert out.decode().splitlines() == ["topic a.b is now a_b", "2 messages of 1 topic copied"]
    status, _, err = run("convert", tmp_path / "logs", tmp_path / "events", "--engine", "commitlog")
    assert status == 1 and "events" in err
    words = ("--engine", "commitlog", "--name", "a.b=orders", "--renumber", "--json")
    status, out, _ = run("convert", tmp_path / "logs", tmp_path / "other", *words)
    assert status == 0
    assert json.loads(out) == {
        "messages": 2,
        "topics": {"a.b": "orders"},
        "left_out": {},
        "damaged": 0,
        "resumed": False,
    }


def test_an_interrupted_conversion_says_how_it_goes_on(run: Run, tmp_path):
    batches = [[(number, b"k", b"x", [])] * 1000 for number in range(30)]
    write(tmp_path / "logs" / "orders-0", batches)

    def stop(done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forebay.convert(tmp_path / "logs", tmp_path / "events", engine="commitlog", progress=stop)
    assert [it.name for it in sorted(tmp_path.iterdir())] == ["events.converting", "logs"]
    words = ("convert", tmp_path / "logs", tmp_path / "events", "--engine", "commitlog")
    status, out, err = run(*words, "--renumber")
    assert (status, out) == (1, b"")
    assert "holds another unfinished conversion: its value of renumber differs; delete it" in err
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    assert out.decode().splitlines()[0].startswith("an earlier run had begun")
    assert [it.name for it in sorted(tmp_path.iterdir())] == ["events", "logs"]


def test_a_message_that_is_lost_is_met_by_the_copy_and_the_advice_can_be_followed(
    run: Run, tmp_path
):
    """The partial copy stayed, and the next command was refused because of it."""
    with forebay.open(tmp_path / "events", commitlog_file_size=1 << 20, default_queues=1) as store:
        places = [store.send("orders", b"%03d" % number).position for number in range(10)]
    log = tmp_path / "events" / "commitlog" / f"{0:020}"
    with log.open("r+b") as file:
        file.seek(places[5] + 20)
        file.write(b"\xff" * 20)
    words = ("convert", tmp_path / "events", tmp_path / "log", "--engine", "partitionlog")
    status, _, err = run(*words)
    assert status == 1
    reason = "because queue 0 of orders has no message at offset 5"
    assert err.startswith(f"forebay: offsets cannot be kept, {reason}; with --renumber messages")
    assert sorted(it.name for it in tmp_path.iterdir()) == ["events"]
    # Status 1 says that the source is damaged.
    assert run(*words, "--renumber")[0] == 1
    with forebay.open(tmp_path / "log", mode="r") as reader:
        found = [it.body for it in reader.tail("orders", start="earliest", follow=False)]
    assert found == [b"%03d" % number for number in range(10) if number != 5]
