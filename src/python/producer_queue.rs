//! The queue of a producer, as an argument of `Store.producer`.

use super::convert::{Queue, wrong_type};
use super::errors::{invalid, must};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The argument `queue` of `Store.producer`.
pub(super) enum ProducerQueue<'a> {
    /// A queue for messages that name none.
    Number(Option<u32>),
    /// A queue that the producer of this name owns.
    Own(&'a str),
}

impl ProducerQueue<'_> {
    pub(super) fn of<'a>(
        queue: Option<&Bound<'_, PyAny>>,
        name: Option<&'a str>,
    ) -> PyResult<ProducerQueue<'a>> {
        let word = queue.and_then(|queue| queue.cast::<PyString>().ok());
        match (word, name) {
            (Some(word), Some(name)) if *word == "own" => Ok(ProducerQueue::Own(name)),
            (Some(word), None) if *word == "own" => {
                let rule = "be given with queue=\"own\"";
                Err(must("name", "None", rule))
            }
            (Some(word), _) => {
                let rule = "be a number or \"own\"";
                Err(must("queue", word.repr()?, rule))
            }
            (None, Some(name)) => {
                let reason = "has no effect without queue=\"own\"";
                Err(invalid("name", format!("{name:?}"), reason))
            }
            (None, None) => {
                let number = |queue: &Bound<'_, PyAny>| match queue.hasattr("__index__")? {
                    true => queue.extract::<Queue>().map(|queue| queue.0),
                    false => Err(wrong_type("queue", queue, "an integer or \"own\"")),
                };
                queue.map(number).transpose().map(ProducerQueue::Number)
            }
        }
    }
}
