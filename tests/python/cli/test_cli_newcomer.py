"""What a newcomer meets at the shell: help, lists as JSON, and errors in the words of the shell."""

import argparse
import json
import os
import re

import pytest

import forebay
from forebay import cli

#: Words of Python that no help text and no error of the command line may have.
PYTHON = re.compile(
    r"\b(\w+=(True|False|None|\"\w+\")|True|False|None|timedelta|datetime|mode is|"
    r"mode[= ]\"?(a|r|x|share)\b\"?|lock_timeout|adopt=|engine=|properties=|pass properties|"
    r"headers=|buffer|codec|surrogates|forebay\.open|\w+Error|isinstance|NoneType|'str'|'int')"
)


#: Verbs that print no list and no figures.
NO_LIST = {
    *(("demo",), ("export",), ("console",), ("shell",), ("completion",)),
    *(("commits", "resolve"), ("commits", "withdraw")),
}


def verbs(parser, words=()):
    """Return the words of each verb, those of verbs within verbs as well."""
    return [found for found, _ in parsers(parser, words)]


def parsers(parser, words=()):
    """Return the words of each verb and its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield (*words, name), below
                yield from parsers(below, (*words, name))


def test_every_verb_that_prints_a_list_has_json():
    without = {
        words
        for words, parser in parsers(cli.make_parser())
        if not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)
        and not any("--json" in action.option_strings for action in parser._actions)
    }
    assert without == NO_LIST


def test_the_help_of_every_verb_works_and_speaks_no_python(run):
    found = list(verbs(cli.make_parser()))
    assert len(found) > 25
    for words in ((), *found):
        status, out, err = run(*words, "--help")
        assert (status, err) == (0, ""), words
        text = out.decode()
        assert text.startswith(f"usage: {' '.join(('forebay', *words))} "), words
        assert PYTHON.findall(text) == [], words


LISTS = [
    ("info",),
    ("topics",),
    ("topics", "--queues"),
    ("groups",),
    ("dlq", "list"),
    ("commits", "list"),
    ("verify",),
    ("cat", "orders"),
    ("tail", "orders"),
    ("query", "orders", "k1"),
    ("dlq", "show", "billing"),
]


@pytest.fixture
def consumed(store):
    """Return the store's directory, with a group and a dead letter of it."""
    with forebay.open(store) as opened, opened.consumer("orders", group="billing") as consumer:
        first, *rest = consumer.poll(timeout=0)
        consumer.reject(first, "no such fruit")
        consumer.ack(rest)
    return store


def test_every_list_is_also_json(run, consumed):
    for words in LISTS:
        verb = words[:2] if words[0] in ("dlq", "commits") else words[:1]
        status, out, err = run(*verb, consumed, *words[len(verb) :], "--json")
        assert (status, err) == (0, ""), words
        lines = [json.loads(line) for line in out.splitlines()]
        assert lines, words
    found = json.loads(run("groups", consumed, "--json")[1])
    assert found[0]["group"] == "billing"


WRONG = [
    ("info", "nowhere"),
    ("cat", "nowhere", "orders"),
    ("repair", "nowhere"),
    ("send", "broker", "orders", "x"),
    ("repair", "broker"),
    ("reset-offsets", "broker", "fx-group", "fx-orders", "--to", "latest"),
    ("send", "store", "a/b", "x"),
    ("send", "store", "orders", "x", "--key", "two words"),
    ("send", "store", "orders", "x", "--queue", "99"),
    ("cat", "store", "nope"),
    ("cat", "store", "orders", "--start", "0=99"),
    ("reset-offsets", "store", "nobody", "orders", "--to", "earliest"),
    ("dlq", "show", "store", "nobody"),
    ("commits", "withdraw", "store", "none", "1"),
    ("archive", "nowhere", "target"),
    ("export", "store", "no/such/folder/x.csv"),
    ("send", "store", "orders", "x", "--engine", "partitionlog"),
    ("compact", "log", "orders", "--segment-bytes", "5"),
    ("convert", "store", "store/sub", "--engine", "partitionlog"),
    ("archive", "store", "store/sub"),
]
#: The same for arguments that are wrong together.
UNFIT = [
    ("send", "store", "orders", "--tombstone", "--key", "k"),
    ("send", "store", "orders", "x", "--header", "a=b"),
    ("send", "new", "orders", "x", "--header", "a=b"),
    ("send", "log", "orders", "--tombstone"),
    ("compact", "store", "orders"),
]
#: Verbs that write, with what they need.
WRITING = [
    ("send", "store", "orders", "x"),
    ("repair", "store"),
    ("shell", "store", "--write", "-c", "store"),
    ("reset-offsets", "store", "billing", "orders", "--to", "latest"),
    ("dlq", "redrive", "store", "billing"),
    ("dlq", "purge", "store", "billing"),
]


def refused(run, words, status):
    """Run a command that is refused in one line without words of Python; return the line."""
    found, out, err = run(*words)
    assert (found, out) == (status, b""), (words, err)
    assert err.startswith("forebay") and err.count("\n") == 1, words
    assert PYTHON.findall(err) == [], err
    return err


@pytest.fixture
def log(store):
    """Return the directory of a partition log, beside the store."""
    with forebay.open(store.parent / "log", engine="partitionlog") as log:
        log.send("orders", b"x")
    return store.parent / "log"


def test_errors_advise_what_the_shell_can_do(run, store, broker, log, monkeypatch):
    monkeypatch.chdir(store.parent)
    for words in WRONG:
        refused(run, words, 1)
    for words in UNFIT:
        refused(run, words, 2)
    assert not (store.parent / "new").exists()


def test_beside_a_writer_the_verbs_that_write_say_what_is_possible(run, consumed, log, monkeypatch):
    monkeypatch.chdir(consumed.parent)
    with forebay.open("store"), forebay.open("log"):
        for words in (*WRITING, ("send", "log", "t", "x"), ("compact", "log", "orders")):
            err = refused(run, words, 1)
            assert "is being written by" in err and "once that process has closed" in err, err
    with forebay.open("store", mode="share") as store:
        err = refused(run, ("repair", "store"), 1)
        assert f"by process {os.getpid()}: " in err
        before = store.topics["orders"].queues[0].max_offset
        for words in WRITING:
            if words[0] != "repair":
                assert run(*words)[::2] == (0, ""), words
        assert run("send", "store", "orders", "x", "--queue", "0")[0] == 0
        assert store.topics["orders"].queues[0].max_offset > before


def test_a_store_in_memory_is_refused_by_every_verb(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = 0
    for words, parser in parsers(cli.make_parser()):
        names = [action.dest for action in parser._actions if not action.option_strings]
        for name in names:
            if name in ("store", "source", "target", "path"):
                given = [":memory:" if one == name else "x" for one in names]
                needed = required(parser)
                assert ":memory:" in refused(run, (*words, *given, *needed), 2)
                tried += 1
    assert tried > 25
    assert list(tmp_path.iterdir()) == []


def required(parser):
    """Return the options without which a verb does not run."""
    return [
        word
        for action in parser._actions
        if action.option_strings and action.required
        for word in (action.option_strings[-1], str(next(iter(action.choices or ["latest"]))))
    ]
