"""What a newcomer meets at the shell: help, lists as JSON, and errors in the words of the shell."""

import argparse
import json
import re

import pytest

import forebay
from forebay import cli

#: Words of Python that no help text and no error of the command line may have.
PYTHON = re.compile(
    r"\b(\w+=(True|False|None|\"\w+\")|True|False|None|timedelta|datetime|mode \"?[arx]\"?|"
    r"forebay\.open|\w+Error|isinstance|NoneType|'str'|'int')\b"
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
]


def test_errors_advise_what_the_shell_can_do(run, store, broker, monkeypatch):
    monkeypatch.chdir(store.parent)
    for words in WRONG:
        status, out, err = run(*words)
        assert (status, out) == (1, b""), words
        assert err.startswith("forebay: ") and err.count("\n") == 1, words
        assert PYTHON.findall(err) == [], err
