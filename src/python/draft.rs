//! The arguments of a send, borrowed for the duration of the call. With a body of `bytes` and at
//! most one key nothing is allocated.

use super::convert::{self, Time, items, text, wrong_type};
use super::edge;
use super::errors::invalid;
use crate::{Delay, Draft, Durability};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

/// The arguments besides the body, as Python objects.
#[derive(Default)]
pub(super) struct Given<'a, 'py> {
    pub(super) key: Option<&'a Bound<'py, PyAny>>,
    pub(super) keys: Option<&'a Bound<'py, PyAny>>,
    pub(super) tags: Option<&'a Bound<'py, PyAny>>,
    pub(super) properties: Option<&'a Bound<'py, PyAny>>,
    pub(super) queue: Option<u32>,
    pub(super) timestamp: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Given<'_, 'py> {
    /// Builds the message from `body` and the arguments, and passes it to `send`.
    #[inline]
    pub(super) fn with_draft<T>(
        &self,
        body: &Bound<'py, PyAny>,
        send: impl FnOnce(&Draft<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let body = edge::body(body)?;
        let tags = self.tags.map(|tags| text("tags", tags)).transpose()?;
        let (one, many_objects, many);
        let keys: &[&str] = match (self.key, self.keys) {
            (None, None) => &[],
            (Some(key), None) => {
                one = [text("key", key)?];
                &one
            }
            (None, Some(keys)) => {
                many_objects = items("keys", keys)?;
                many = texts("keys", &many_objects)?;
                &many
            }
            (Some(_), Some(_)) => {
                return Err(PyTypeError::new_err("pass key or keys, not both"));
            }
        };
        let pair_objects = self.properties.map_or_else(|| Ok(Vec::new()), pairs)?;
        let properties = pair_texts(&pair_objects)?;
        send(&Draft {
            body: &body,
            keys,
            tags,
            properties: &properties,
            queue: self.queue,
            born_timestamp: self.timestamp.map(born).transpose()?,
            ..Draft::default()
        })
    }
}

/// A born time: an aware `datetime`. Only bounds of searches also take integers.
pub(super) fn born(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    match Time::of_datetime("timestamp", object)? {
        Some(time) => Ok(time.at_or_before()),
        None => Err(wrong_type("timestamp", object, "an aware datetime")),
    }
}

/// The texts of objects; they borrow from the objects.
pub(super) fn texts<'a>(name: &str, objects: &'a [Bound<'_, PyAny>]) -> PyResult<Vec<&'a str>> {
    objects.iter().map(|object| text(name, object)).collect()
}

/// Name and value of a property, as Python objects.
pub(super) type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);
/// All properties of a message, as Python objects.
pub(super) type Pairs<'py> = Vec<Pair<'py>>;
/// Name and value of a property, borrowed from their objects.
pub(super) type Texts<'a> = (&'a str, &'a str);

/// The pairs of a mapping of properties.
pub(super) fn pairs<'py>(object: &Bound<'py, PyAny>) -> PyResult<Pairs<'py>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let Ok(mapping) = object.cast::<PyMapping>() else {
        return Err(wrong_type(
            "properties",
            object,
            "a mapping of names to values",
        ));
    };
    mapping.items()?.iter().map(|item| item.extract()).collect()
}

/// The texts of pairs; they borrow from the pairs.
pub(super) fn pair_texts<'a>(pairs: &'a Pairs<'_>) -> PyResult<Vec<Texts<'a>>> {
    let name = |object| text("property name", object);
    let value = |object| text("property value", object);
    pairs
        .iter()
        .map(|pair| Ok((name(&pair.0)?, value(&pair.1)?)))
        .collect()
}

/// A delay level; 0 means no delay. The core checks that the level exists.
pub(super) struct DelayLevel(pub(super) u8);

impl<'py> FromPyObject<'_, 'py> for DelayLevel {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<DelayLevel> {
        let level = convert::whole_number(&object)?.and_then(|level| u8::try_from(level).ok());
        let reason = "must be from 1 to the number of levels, which is 18, or 0 for no delay";
        level
            .map(DelayLevel)
            .ok_or_else(|| invalid("delay_level", &*object, reason))
    }
}

/// When a message is delivered, by the arguments of a send, of which at most one is given.
#[inline]
pub(super) fn when(
    level: &DelayLevel,
    delay: Option<&Bound<'_, PyAny>>,
    deliver_at: Option<&Bound<'_, PyAny>>,
) -> PyResult<Delay> {
    match (level.0, delay, deliver_at) {
        (level, None, None) => Ok(Delay::level(level)),
        (0, Some(delay), None) => Ok(Delay::For(convert::duration("delay", delay)?)),
        (0, None, Some(at)) => match Time::of_datetime("deliver_at", at)? {
            Some(time) => Ok(Delay::Until(time.at_or_after())),
            None => Err(wrong_type("deliver_at", at, "an aware datetime")),
        },
        _ => Err(PyTypeError::new_err(
            "pass only one of delay, deliver_at and delay_level",
        )),
    }
}

/// The argument `flush`: `None` means as the store was opened, true waits, false does not.
#[inline]
pub(super) fn durability(flush: Option<bool>) -> Durability {
    match flush {
        None => Durability::Default,
        Some(true) => Durability::Flushed,
        Some(false) => Durability::Written,
    }
}
