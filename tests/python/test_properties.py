"""Every accepted message comes back unchanged, however it was sent."""

import hypothesis
import pyarrow
import pytest
from harness import PROOF, seed
from hypothesis import strategies

import forebay

# Text that the format can store: no property separators, no spaces or controls in words.
letters = strategies.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"])
words = strategies.text(letters, min_size=1, max_size=12)
values = strategies.text(
    strategies.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"),
    min_size=1,
    max_size=20,
)
messages = strategies.fixed_dictionaries(
    {
        "body": strategies.binary(max_size=200),
        "keys": strategies.lists(words, max_size=3),
        "tags": strategies.none() | words.filter(lambda tag: "||" not in tag and tag != "*"),
        "properties": strategies.dictionaries(words.map("my-{}".format), values, max_size=4),
    }
)


def seen(message):
    """Return the parts of a message that its sender set."""
    return {
        "body": message.body,
        "keys": list(message.keys),
        "tags": message.tags,
        "properties": message.properties,
    }


@hypothesis.seed(seed())
@hypothesis.settings(
    max_examples=2000 if PROOF else 60,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@pytest.mark.parametrize("engine", ["memory", "commitlog", "partitionlog"])
@hypothesis.given(sent=strategies.lists(messages, min_size=1, max_size=8))
def test_messages_come_back_as_they_were_sent(engine, tmp_path_factory, sent):
    path = ":memory:" if engine == "memory" else tmp_path_factory.mktemp("any") / "store"
    sizes = {"commitlog_file_size": 1 << 20} if engine == "commitlog" else {}
    with forebay.open(path, engine=engine, **sizes) as store:
        one, batch, arrow = (store.producer(name, queue=0) for name in ("one", "batch", "arrow"))
        for message in sent:
            one.send(message["body"], **{name: message[name] for name in message if name != "body"})
        rows = {name: [message[name] for message in sent] for name in sent[0]}
        batch.send_batch(rows["body"], **{name: rows[name] for name in rows if name != "body"})
        strings = pyarrow.map_(pyarrow.utf8(), pyarrow.utf8())
        mappings = [list(mapping.items()) for mapping in rows["properties"]]
        arrow.send_arrow(
            pyarrow.table(
                {
                    "body": rows["body"],
                    "keys": pyarrow.array(rows["keys"], pyarrow.list_(pyarrow.utf8())),
                    "tags": pyarrow.array(rows["tags"], pyarrow.utf8()),
                    "properties": pyarrow.array(mappings, strings),
                }
            )
        )
        for topic in ("one", "batch", "arrow"):
            assert [seen(message) for message in store.read(topic, 0, 0)] == sent
        for message in sent:
            for key in message["keys"]:
                assert message["body"] in [found.body for found in store.query("one", key)]
