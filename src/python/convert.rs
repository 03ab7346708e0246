//! Conversion of arguments: bounded numbers, times, durations, texts and tags. Errors name the
//! argument.

use super::errors::must;
use super::mapping::mapping_items;
use super::once::epoch;
use super::signals::check_signals;
use crate::{Bound as Limit, TOPIC_QUEUES_MAX};
use pyo3::exceptions::{PyException, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDateTime, PyDelta, PyDict, PyInt, PyString};
use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;

/// A queue's number.
#[derive(Clone, Copy)]
pub(super) struct Queue(pub(super) u32);

impl<'py> FromPyObject<'_, 'py> for Queue {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Queue> {
        let wrong = |()| must("queue", &*object, "be an integer from 0 to 2^32 - 1");
        integer("queue", &object)?
            .and_then(|number| u32::try_from(number).ok())
            .map(Queue)
            .ok_or(())
            .map_err(wrong)
    }
}

/// An offset, clamped to the range of `i64`. No queue has offsets beyond it, so the core reports
/// the clamped one as out of range.
pub(super) struct Offset(pub(super) i64);

impl<'py> FromPyObject<'_, 'py> for Offset {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Offset> {
        match integer("offset", &object)? {
            Some(number) => Ok(Offset(number)),
            None if object.lt(0)? => Ok(Offset(i64::MIN)),
            None => Ok(Offset(i64::MAX)),
        }
    }
}

/// A number as [`whole_number`] reads it; a bool is none.
pub(super) fn integer(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, object, "an integer"));
    }
    whole_number(object).map_err(|error| refused(name, object, "an integer", error))
}

/// A count of at least 1; one that is too large for `usize` is clamped.
pub(super) fn count(name: &str, object: &Bound<'_, PyAny>) -> PyResult<usize> {
    let number = integer(name, object)?;
    match number.map(usize::try_from) {
        Some(Ok(count)) if count > 0 => Ok(count),
        None if object.gt(0)? => Ok(usize::MAX),
        _ => Err(must(name, object, "be at least 1")),
    }
}

/// The argument `max_messages`.
pub(super) fn max_messages(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    count("max_messages", object)
}

/// The argument `max_bytes`; `None` sets no limit.
pub(super) fn max_bytes(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    match object.is_none() {
        true => Ok(None),
        false => count("max_bytes", object).map(Some),
    }
}

/// The value of an integer (anything with `__index__`); `None` if it does not fit `i64`.
pub(super) fn whole_number(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    match object.extract::<i64>() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A point in time, in microseconds like a `datetime`. Integer arguments are milliseconds since the
/// epoch.
#[derive(Clone, Copy)]
pub(super) struct Time {
    micros: i128,
}

impl Time {
    /// The time in milliseconds, rounded up.
    pub(super) fn at_or_after(self) -> i64 {
        clamp(-(-self.micros).div_euclid(1000))
    }

    /// The time in milliseconds, rounded down.
    pub(super) fn at_or_before(self) -> i64 {
        clamp(self.micros.div_euclid(1000))
    }

    /// The time of a `datetime`; `None` for other objects. `name` is the argument's name.
    pub(super) fn of_datetime(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<Time>> {
        let Ok(datetime) = object.cast::<PyDateTime>() else {
            return Ok(None);
        };
        if datetime.call_method0("utcoffset")?.is_none() {
            let rule = "have a time zone, as in datetime.now(timezone.utc)";
            return Err(must(name, datetime.str()?, rule));
        }
        let since = datetime.sub(epoch(object.py())?)?;
        let part = |part: &str| since.getattr(part)?.extract::<i64>().map(i128::from);
        let seconds = part("days")? * 86_400 + part("seconds")?;
        let micros = seconds * 1_000_000 + part("microseconds")?;
        Ok(Some(Time { micros }))
    }

    /// An argument that takes an aware `datetime` or milliseconds since the epoch.
    pub(super) fn or_millis(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Time> {
        if let Some(time) = Time::of_datetime(name, object)? {
            return Ok(time);
        }
        if object.is_instance_of::<PyBool>() || !object.hasattr("__index__")? {
            return Err(wrong_type(
                name,
                object,
                "an aware datetime or integer milliseconds",
            ));
        }
        let millis = Offset::extract(object.as_borrowed())?.0;
        Ok(Time {
            micros: i128::from(millis) * 1000,
        })
    }
}

fn clamp(millis: i128) -> i64 {
    let bounded = millis.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    i64::try_from(bounded).unwrap_or_default()
}

/// The error for an argument of the wrong type.
pub(super) fn wrong_type(name: &str, object: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let kind = object
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{name} must be {wanted}, got {kind}"))
}

/// The error of an argument whose conversion raised `error`: that of a wrong type, or `error`
/// itself if it is not about the value. Ctrl-C may fall into `__iter__` or `__index__`.
pub(super) fn refused(name: &str, object: &Bound<'_, PyAny>, wanted: &str, error: PyErr) -> PyErr {
    match error.is_instance_of::<PyException>(object.py()) {
        true => wrong_type(name, object, wanted),
        false => error,
    }
}

/// The `datetime` in UTC of milliseconds since the epoch.
///
/// # Errors
///
/// `UnsupportedError` outside the years 1 to 9999, which Python's `datetime` has.
pub(super) fn datetime<'py>(py: Python<'py>, millis: i64) -> PyResult<Bound<'py, PyAny>> {
    let days = i32::try_from(millis.div_euclid(86_400_000)).unwrap_or(i32::MAX);
    let rest = millis.rem_euclid(86_400_000);
    let (seconds, micros) = (rest / 1000, rest % 1000 * 1000);
    let (seconds, micros) = (
        i32::try_from(seconds).unwrap_or_default(),
        i32::try_from(micros).unwrap_or_default(),
    );
    let there = PyDelta::new(py, days, seconds, micros, false);
    let there = there.and_then(|delta| epoch(py)?.add(delta));
    there.map_err(|error| match error.is_instance_of::<PyOverflowError>(py) {
        true => {
            let what = format!("a datetime outside the years 1 to 9999 ({millis} ms)");
            crate::Error::Unsupported { what }.into()
        }
        false => error,
    })
}

/// A duration: a number of seconds, or a `timedelta`.
pub(super) fn duration(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = if object.is_instance_of::<PyDelta>() {
        object.call_method0("total_seconds")?.extract::<f64>()?
    } else if object.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, object, "seconds or a timedelta"));
    } else {
        let number = object.extract::<f64>();
        number.map_err(|error| refused(name, object, "seconds or a timedelta", error))?
    };
    // No process runs longer, and adding this to a point in time does not overflow.
    const LONGEST: f64 = 100.0 * 366.0 * 86_400.0;
    let too_long = seconds > LONGEST && seconds.is_finite();
    let seconds = if too_long { LONGEST } else { seconds };
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| must(name, seconds, "be a number of seconds, 0 or more"))
}

/// The text of an argument that is a `str`.
#[inline]
pub(super) fn word<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let Ok(text) = object.cast::<PyString>() else {
        return Err(wrong_type(name, object, "a str"));
    };
    text.to_str().map_err(|_| with_surrogates(name, object))
}

/// The error for text that UTF-8 cannot encode. The command line has its own message for it.
#[cold]
fn with_surrogates(name: &str, object: &Bound<'_, PyAny>) -> PyErr {
    let given = object.py().import("forebay.given");
    let made = given.and_then(|it| it.call_method1("with_surrogates", (name, shown(object))));
    // While the interpreter shuts down, nothing can be imported.
    let plain = |_| {
        must(
            name,
            shown(object),
            "not have surrogates, which UTF-8 cannot encode",
        )
    };
    made.map_or_else(plain, PyErr::from_value)
}

/// The text of an argument: `str`, or UTF-8 `bytes`.
#[inline]
pub(super) fn text<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    if object.is_instance_of::<PyString>() {
        return word(name, object);
    }
    let Ok(bytes) = object.cast::<PyBytes>() else {
        return Err(wrong_type(name, object, "str or UTF-8 bytes"));
    };
    let text = std::str::from_utf8(bytes.as_bytes());
    text.map_err(|_| must(name, shown(object), "be UTF-8"))
}

/// The bytes of a key to search for: text or any bytes.
pub(super) fn key_bytes<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes()),
        Err(_) => text(name, object).map(str::as_bytes),
    }
}

/// A value as Python shows it.
fn shown(object: &Bound<'_, PyAny>) -> String {
    object
        .repr()
        .map_or_else(|_| String::new(), |text| text.to_string())
}

/// Maximum number of items in an argument that is not a batch: more than any such argument needs.
const ITEMS_MAX: usize = 1 << 20;

/// References to the items of an iterable, so that their bytes can be borrowed. Text is refused.
pub(super) fn items<'py>(
    name: &str,
    object: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let items = at_most(name, object, "a sequence", ITEMS_MAX)?;
    if items.len() > ITEMS_MAX {
        return Err(must(
            name,
            "more",
            &format!("have at most {ITEMS_MAX} items"),
        ));
    }
    Ok(items)
}

/// The first items of an iterable, at most one more than `max`, because an iterable may be endless.
pub(super) fn at_most<'py>(
    name: &str,
    object: &Bound<'py, PyAny>,
    wanted: &str,
    max: usize,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let entry = |(row, entry): (usize, PyResult<_>)| check_signals(object.py(), row).and(entry);
    let entries = iterated(name, object, wanted)?.enumerate();
    entries.take(max.saturating_add(1)).map(entry).collect()
}

/// The items of an iterable, each converted as it comes. The first wrong one ends the iteration,
/// because an iterable may be endless. Errors say that the argument must be `wanted`.
pub(super) fn each<'py, T>(
    name: &str,
    object: &Bound<'py, PyAny>,
    wanted: &str,
    convert: impl Fn(usize, Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let entry = |(row, entry): (usize, PyResult<_>)| {
        check_signals(object.py(), row)?;
        convert(row, entry?)
    };
    let entries = iterated(name, object, wanted)?.enumerate();
    entries.map(entry).collect()
}

fn iterated<'py>(
    name: &str,
    object: &Bound<'py, PyAny>,
    wanted: &str,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>>> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Err(wrong_type(name, object, wanted));
    }
    let entries = object.try_iter();
    let mut entries = entries.map_err(|error| refused(name, object, wanted, error))?;
    // Does not ask for its length: Python raises an error if the length does not fit a word.
    Ok(iter::from_fn(move || entries.next()))
}

/// The tags of a filter: one tag, several joined by ``||``, or a sequence. ``None`` and ``"*"``
/// mean all messages.
pub(super) fn tags(object: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    let Some(object) = object else {
        return Ok(Vec::new());
    };
    if object.is_instance_of::<PyString>() {
        let tags = text("tags", object)?;
        if tags.trim() == "*" {
            return Ok(Vec::new());
        }
        let parts = tags
            .split("||")
            .map(str::trim)
            .filter(|tag| !tag.is_empty());
        return Ok(parts.map(str::to_owned).collect());
    }
    let items = items("tags", object)?;
    items
        .iter()
        .map(|item| text("tags", item).map(str::to_owned))
        .collect()
}

/// Where a scan or a tail begins or ends: a word, an aware `datetime`, or offsets by queue.
///
/// An integer is refused, because it could mean an offset or a time.
pub(super) fn limit(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Limit> {
    limit_or(name, object, "an aware datetime or {queue: offset}")
}

/// The same; errors name `others` as the allowed values besides words.
pub(super) fn limit_or(name: &str, object: &Bound<'_, PyAny>, others: &str) -> PyResult<Limit> {
    let wanted = format!("\"earliest\", \"latest\", {others}");
    if object.is_instance_of::<PyString>() {
        return match word(name, object)? {
            "earliest" => Ok(Limit::Earliest),
            "latest" => Ok(Limit::Latest),
            other => Err(must(name, format!("{other:?}"), &format!("be {wanted}"))),
        };
    }
    if let Some(time) = Time::of_datetime(name, object)? {
        return Ok(Limit::Time(time.at_or_after()));
    }
    if object.is_instance_of::<PyInt>() {
        let text = format!(
            "{name} is the integer {object}, which could be an offset or time; pass {others}"
        );
        return Err(PyTypeError::new_err(text));
    }
    let Some(items) = mapping_items(object)? else {
        return Err(wrong_type(name, object, &wanted));
    };
    let mut offsets = BTreeMap::new();
    for item in items {
        let (queue, offset) = item
            .extract::<(Queue, Offset)>()
            .map_err(|error| in_mapping(name, object, error))?;
        let offset = u64::try_from(offset.0);
        let offset = offset.map_err(|_| must(name, object, "not contain negative offsets"))?;
        offsets.insert(queue.0, offset);
    }
    Ok(Limit::Offsets(offsets))
}

/// The error for a mapping with an item that is not a queue and an offset. A type error names
/// `name`.
fn in_mapping(name: &str, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    match error.is_instance_of::<PyTypeError>(object.py()) {
        true => {
            let shown = shown(object);
            PyTypeError::new_err(format!("{name} must map queues to offsets, got {shown}"))
        }
        false => error,
    }
}

/// A queue among several.
pub(super) fn queue_of(name: &str, object: &Bound<'_, PyAny>) -> PyResult<u32> {
    integer(name, object)?;
    Ok(object.extract::<Queue>()?.0)
}

/// The name that resembles a misspelt one most, if any does.
pub(super) fn nearest(py: Python<'_>, name: &str, names: &[&str]) -> PyResult<Option<String>> {
    let difflib = py.import("difflib")?;
    let near = difflib.call_method1("get_close_matches", (name, names, 1))?;
    Ok(near.extract::<Vec<String>>()?.into_iter().next())
}

/// The keywords of a send.
const KEYWORDS: &[&str] = &[
    "key",
    "keys",
    "tags",
    "properties",
    "headers",
    "queue",
    "delay_level",
    "timestamp",
    "flush",
    "delay",
    "deliver_at",
];

/// The error for an unknown keyword of a send, if there is one; it suggests the nearest name.
pub(super) fn unknown_keyword(keywords: Option<&Bound<'_, PyDict>>) -> Option<PyErr> {
    let keywords = keywords?;
    let names = keywords.keys().extract::<Vec<String>>().ok()?;
    let name = names.iter().find(|name| !KEYWORDS.contains(&&***name))?;
    let near = match nearest(keywords.py(), name, KEYWORDS) {
        Ok(near) => near,
        Err(error) => return Some(error),
    };
    let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    let text = format!("Store.send() got an unexpected keyword argument '{name}'{hint}");
    Some(PyTypeError::new_err(text))
}

/// The number of queues to give a topic.
pub(super) fn queue_count(queues: &Bound<'_, PyAny>) -> PyResult<u32> {
    let number = integer("queues", queues)?.and_then(|number| u32::try_from(number).ok());
    let rule = format!("be from 1 to {TOPIC_QUEUES_MAX}");
    number.ok_or_else(|| must("queues", queues, &rule))
}
