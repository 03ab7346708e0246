"""The verb convert."""

import json

from cli_support import Run
from kafka_batches import write


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
