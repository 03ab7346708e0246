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
    assert "holds another unfinished conversion: it has another renumber; delete it" in err
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    assert out.decode().splitlines()[0].startswith("an earlier run had begun")
    assert [it.name for it in sorted(tmp_path.iterdir())] == ["events", "logs"]
