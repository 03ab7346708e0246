//! Arguments by their names, for `from_py_with`: PyO3's own errors name neither the argument nor
//! what is allowed.

use super::convert::{count, word, wrong_type};
use super::errors::must;
use super::message::Message;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::path::PathBuf;

macro_rules! arguments {
    ($($function:ident: $type:ty = $read:ident($name:literal);)+) => {
        $(pub(super) fn $function<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<$type> {
            $read($name, object)
        })+
    };
}

arguments! {
    topic: &'a str = word("topic");
    topic_or_none: Option<&'a str> = word_or_none("topic");
    group: &'a str = word("group");
    mode: &'a str = word("mode");
    engine: Option<&'a str> = word_or_none("engine");
    flush_word: Option<&'a str> = word_or_none("flush");
    name: Option<&'a str> = word_or_none("name");
    reason: Option<&'a str> = word_or_none("reason");
    order: &'a str = word("order");
    ack: &'a str = word("ack");
    atomic: bool = flag("atomic");
    drop_keyless: bool = flag("drop_keyless");
    follow: bool = flag("follow");
    flush: Option<bool> = flag_or_none("flush");
    verify: Option<bool> = flag_or_none("verify");
    threads: usize = count("threads");
    batch: usize = count("batch");
    message: &'a Bound<'py, Message> = message_of("message");
}

fn word_or_none<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a str>> {
    match object.is_none() {
        true => Ok(None),
        false => word(name, object).map(Some),
    }
}

fn flag(name: &str, object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let flag = object.extract::<bool>();
    flag.map_err(|_| wrong_type(name, object, "a bool"))
}

fn flag_or_none(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    match object.is_none() {
        true => Ok(None),
        false => flag(name, object).map(Some),
    }
}

/// A path as the system stores it: Python's surrogates stand for bytes that are not UTF-8.
pub(super) fn path(object: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let path = object.extract::<PathBuf>();
    path.map_err(
        |error| match error.is_instance_of::<PyTypeError>(object.py()) {
            true => wrong_type("path", object, "a str or a path of str"),
            false => must(
                "path",
                object
                    .repr()
                    .map_or_else(|_| String::new(), |it| it.to_string()),
                "not have surrogates that stand for no byte",
            ),
        },
    )
}

fn message_of<'a, 'py>(
    name: &str,
    object: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, Message>> {
    let message = object.cast::<Message>();
    message.map_err(|_| wrong_type(name, object, "a Message"))
}
