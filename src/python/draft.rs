//! The arguments of a send, borrowed for the duration of the call. With a body of `bytes` and at
//! most one key nothing is allocated.

use super::convert::{self, Queue, Time, items, text, wrong_type};
use super::edge;
use super::errors::must;
use super::mapping::{is_mapping, mapping_items};
use super::signals::check_signals;
use crate::{Delay, Draft, Durability};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::borrow::Cow;

/// The arguments besides the body, as Python objects.
#[derive(Default)]
pub(super) struct Given<'a, 'py> {
    pub(super) key: Option<&'a Bound<'py, PyAny>>,
    pub(super) keys: Option<&'a Bound<'py, PyAny>>,
    pub(super) tags: Option<&'a Bound<'py, PyAny>>,
    pub(super) properties: Option<&'a Bound<'py, PyAny>>,
    pub(super) headers: Option<&'a Bound<'py, PyAny>>,
    pub(super) queue: Option<Queue>,
    pub(super) timestamp: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Given<'_, 'py> {
    /// Builds the message from `body` and the arguments, and passes it to `send`. `takes_null`:
    /// whether the engine keeps messages without a body.
    #[inline]
    pub(super) fn with_draft<T>(
        &self,
        takes_null: bool,
        body: &Bound<'py, PyAny>,
        send: impl FnOnce(&Draft<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let body = body_or_null(takes_null, body)?;
        let tags = self.tags.map(|tags| text("tags", tags)).transpose()?;
        let (one, many_objects, many);
        let (key, keys): (Option<&[u8]>, &[&str]) = match (self.key, self.keys) {
            (None, None) => (None, &[]),
            (Some(given), None) => match not_text(given) {
                None => {
                    one = [text("key", given)?];
                    (None, &one)
                }
                key => (key, &[]),
            },
            (None, Some(keys)) => {
                many_objects = items("keys", keys)?;
                let key;
                (key, many) = keys_of("keys", &many_objects)?;
                (key, &many)
            }
            (Some(_), Some(_)) => {
                return Err(PyTypeError::new_err("pass key or keys, not both"));
            }
        };
        let pair_objects = self.properties.map_or_else(|| Ok(Vec::new()), pairs)?;
        let properties = pair_texts(&pair_objects)?;
        let header_objects = self.headers.map_or_else(|| Ok(Vec::new()), headers)?;
        let headers = header_bytes(&header_objects)?;
        let draft = Draft {
            body: body.as_deref().unwrap_or_default(),
            is_null: body.is_none(),
            key,
            keys,
            tags,
            properties: &properties,
            headers: &headers,
            queue: self.queue.map(|queue| queue.0),
            born_timestamp: self.timestamp.map(born).transpose()?,
            ..Draft::default()
        };
        check_tombstone(&draft)?;
        send(&draft)
    }
}

/// The bytes of a body; `None` for None, which only a partition log accepts.
#[inline]
pub(super) fn body_or_null<'a>(
    takes_null: bool,
    body: &'a Bound<'_, PyAny>,
) -> PyResult<Option<Cow<'a, [u8]>>> {
    match body.is_none() {
        false => edge::body(body).map(Some),
        true if takes_null => Ok(None),
        true => Err(PyTypeError::new_err(
            "body must be a buffer, such as bytes, got NoneType: only a partition log has \
             tombstones",
        )),
    }
}

/// Refuses a message without body and key.
#[inline]
pub(super) fn check_tombstone(draft: &Draft<'_>) -> PyResult<()> {
    match draft.is_null && draft.first_key().is_none() {
        false => Ok(()),
        true => Err(PyTypeError::new_err(
            "a message whose body is None is a tombstone, which must have a key",
        )),
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

/// The bytes of a key that is not text.
#[inline]
pub(super) fn not_text<'a>(key: &'a Bound<'_, PyAny>) -> Option<&'a [u8]> {
    let bytes = key.cast::<PyBytes>().ok()?.as_bytes();
    str::from_utf8(bytes).is_err().then_some(bytes)
}

/// The keys of a message: the first if it is not text, and the others.
pub(super) fn keys_of<'a>(
    name: &str,
    objects: &'a [Bound<'_, PyAny>],
) -> PyResult<(Option<&'a [u8]>, Vec<&'a str>)> {
    let key = objects.first().and_then(not_text);
    let rest = objects.get(usize::from(key.is_some())..);
    Ok((key, texts(name, rest.unwrap_or_default())?))
}

/// The headers of a message, as Python objects: names, and values that are `bytes` or None.
pub(super) fn headers<'py>(object: &Bound<'py, PyAny>) -> PyResult<Pairs<'py>> {
    const WANTED: &str = "a sequence of (name, value)";
    if is_mapping(object)? {
        return Err(wrong_type("headers", object, WANTED));
    }
    let pair = |item: Bound<'py, PyAny>| -> PyResult<Pair<'py>> {
        let (name, value) = as_pair(&item).ok_or_else(|| {
            let got = item
                .get_type()
                .name()
                .map_or_else(|_| "?".to_owned(), |it| it.to_string());
            PyTypeError::new_err(format!(
                "headers must be {WANTED}, got an item that is {got}"
            ))
        })?;
        if value.is_none() || value.is_instance_of::<PyBytes>() {
            return Ok((name, value));
        }
        let bytes = edge::copied("header value", &value)?;
        Ok((name, PyBytes::new(item.py(), &bytes).into_any()))
    };
    items("headers", object)?.into_iter().map(pair).collect()
}

/// The items of a tuple or list of two.
pub(super) fn as_pair<'py>(object: &Bound<'py, PyAny>) -> Option<Pair<'py>> {
    let is_pair = object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>();
    let items = is_pair.then(|| items("headers", object).ok()).flatten()?;
    let [name, value] = <[Bound<'py, PyAny>; 2]>::try_from(items).ok()?;
    Some((name, value))
}

/// Name and value of a header, borrowed from their objects.
pub(super) type HeaderBytes<'a> = (&'a str, Option<&'a [u8]>);

/// The names and bytes of headers; they borrow from the pairs.
pub(super) fn header_bytes<'a>(pairs: &'a Pairs<'_>) -> PyResult<Vec<HeaderBytes<'a>>> {
    let bytes = |value: &'a Bound<'_, PyAny>| value.cast::<PyBytes>().ok().map(|it| it.as_bytes());
    let header = |(row, (name, value)): (usize, &'a Pair<'_>)| {
        check_signals(name.py(), row)?;
        Ok((text("header name", name)?, bytes(value)))
    };
    pairs.iter().enumerate().map(header).collect()
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
    let Some(items) = mapping_items(object)? else {
        return Err(wrong_type(
            "properties",
            object,
            "a mapping of names to values",
        ));
    };
    items.iter().map(|item| item.extract()).collect()
}

/// The texts of pairs; they borrow from the pairs.
pub(super) fn pair_texts<'a>(pairs: &'a Pairs<'_>) -> PyResult<Vec<Texts<'a>>> {
    let name = |object| text("property name", object);
    let value = |object| text("property value", object);
    let property = |(row, pair): (usize, &'a Pair<'_>)| {
        check_signals(pair.0.py(), row)?;
        Ok((name(&pair.0)?, value(&pair.1)?))
    };
    pairs.iter().enumerate().map(property).collect()
}

/// A delay level; 0 means no delay. The core checks that the level exists.
pub(super) struct DelayLevel(pub(super) u8);

impl<'py> FromPyObject<'_, 'py> for DelayLevel {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<DelayLevel> {
        let level =
            convert::integer("delay_level", &object)?.and_then(|level| u8::try_from(level).ok());
        let rule = "be from 1 to the number of the store's delay_levels, or 0 for no delay";
        level
            .map(DelayLevel)
            .ok_or_else(|| must("delay_level", &*object, rule))
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
