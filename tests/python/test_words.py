"""Errors in the words of the shell: they follow from the fields of an error, not from its text."""

import copy
import pickle

import pytest

import forebay
from forebay.given import with_surrogates
from forebay.words import Worded, in_words_of_the_shell, text_of_the_shell

#: What a user may have typed.
TYPED = 'x; read it with mode="r"; call roll() on the writer to seal it'


def test_what_a_user_has_typed_is_told_as_it_is():
    text = f"queue is {TYPED}: not a number"
    error = forebay.InvalidOptionError(text, name="queue", value=TYPED, reason="not a number")
    told = in_words_of_the_shell(error)
    assert (str(told), told.value) == (text, TYPED)
    text = f"not supported: {TYPED}"
    assert str(in_words_of_the_shell(forebay.UnsupportedError(text))) == text


def test_a_store_that_can_only_be_read_is_told_in_the_words_of_the_shell(tmp_path):
    path = tmp_path / 'a; read it with mode="r"'
    forebay.open(path, commitlog_file_size=1 << 20).close()
    (path / "batchconsumequeue" / "orders").mkdir(parents=True)
    with pytest.raises(forebay.UnsupportedError) as caught:
        forebay.open(path)
    error = caught.value
    assert error.path == str(path)
    begin = f"not supported: writing to {path}: {error.reason}; "
    assert str(error) == begin + 'read it with mode="r"'
    assert str(in_words_of_the_shell(error)) == begin + "the verbs that only read work"


def test_a_message_that_is_missing_is_told_in_the_words_of_the_shell():
    reason = "no, so offsets cannot be kept; with renumber messages get new ones"
    facts = {"name": "renumber", "value": "False", "reason": reason}
    error = forebay.InvalidOptionError(f"renumber is False: {reason}", **facts)
    assert in_words_of_the_shell(error) is error
    gap = forebay.InvalidOptionError(str(error), topic="orders", queue=1, offset=7, **facts)
    told = in_words_of_the_shell(gap)
    begin = "offsets cannot be kept, because queue 1 of orders has no message at offset 7; "
    assert str(told) == begin + (
        "with --renumber messages get new ones and keep the old as the property FOREBAY_OFFSET"
    )
    assert (told.topic, told.queue, told.offset, told.reason) == ("orders", 1, 7, reason)


def test_other_errors_of_what_is_not_supported_have_no_path():
    error = forebay.UnsupportedError("not supported: time travel")
    assert (error.path, error.reason) == (None, None)


def test_text_that_is_not_utf8_is_told_in_the_words_of_the_shell():
    with forebay.open(":memory:") as store, pytest.raises(forebay.InvalidOptionError) as caught:
        store.send("orders", b"", tags="\udcff")
    for error in (caught.value, with_surrogates("tags", repr("\udcff"))):
        rule = "must not have surrogates, which UTF-8 cannot encode"
        assert (str(error), error.reason) == (f"tags {rule}, got '\\udcff'", rule)
        told = in_words_of_the_shell(error)
        assert str(told) == "tags must be UTF-8, got '\\udcff'"
        assert (told.name, told.value, told.reason) == ("tags", "'\\udcff'", "must be UTF-8")
        assert str(in_words_of_the_shell(told)) == str(told)


def test_a_copy_of_a_text_keeps_what_the_shell_says():
    text = Worded("call roll()", "--roll")
    for again in (text, copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert (again, text_of_the_shell(again)) == ("call roll()", "--roll")
    assert text_of_the_shell("call roll()") == "call roll()"
