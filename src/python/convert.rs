//! Arguments: numbers with bounds, times, durations, texts and tags, each with the error that names
//! it.

use super::errors::invalid;
use crate::{Bound as Limit, TOPIC_QUEUES_MAX};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDateTime, PyDelta, PyInt, PyMapping, PyString};
use std::collections::BTreeMap;
use std::time::Duration;

/// A queue's number.
pub(super) struct Queue(pub(super) u32);

impl<'py> FromPyObject<'_, 'py> for Queue {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Queue> {
        let wrong = |_| invalid("queue", &*object, "queues are numbered from 0");
        whole_number(&object)?
            .and_then(|number| u32::try_from(number).ok())
            .map(Queue)
            .ok_or(())
            .map_err(wrong)
    }
}

/// An offset, cut to the range of `i64`: beyond it no queue has one, and the error of the core says
/// so.
pub(super) struct Offset(pub(super) i64);

impl<'py> FromPyObject<'_, 'py> for Offset {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Offset> {
        match whole_number(&object)? {
            Some(number) => Ok(Offset(number)),
            None if object.lt(0)? => Ok(Offset(i64::MIN)),
            None => Ok(Offset(i64::MAX)),
        }
    }
}

/// How many of something: at least one.
pub(super) struct Count(pub(super) usize);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Count> {
        match whole_number(&object)?.map(usize::try_from) {
            Some(Ok(count)) if count > 0 => Ok(Count(count)),
            None if object.gt(0)? => Ok(Count(usize::MAX)),
            _ => Err(invalid("the number", &*object, "it is at least 1")),
        }
    }
}

/// The value of an integer, `None` where it does not fit `i64`. Anything that has `__index__` is
/// one.
pub(super) fn whole_number(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    match object.extract::<i64>() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A point in time with the microseconds of a `datetime`; integers are milliseconds since the
/// epoch.
#[derive(Clone, Copy)]
pub(super) struct Time {
    micros: i128,
}

impl Time {
    /// The first millisecond that is not before the time.
    pub(super) fn at_or_after(self) -> i64 {
        clamp(-(-self.micros).div_euclid(1000))
    }

    /// The last millisecond that is not after the time.
    pub(super) fn at_or_before(self) -> i64 {
        clamp(self.micros.div_euclid(1000))
    }

    /// The time that a `datetime` tells; `name` is the argument's.
    pub(super) fn of_datetime(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<Time>> {
        let Ok(datetime) = object.cast::<PyDateTime>() else {
            return Ok(None);
        };
        if datetime.call_method0("utcoffset")?.is_none() {
            let reason = "it has no time zone: give one, as in datetime.now(timezone.utc)";
            return Err(invalid(name, datetime.str()?, reason));
        }
        let since = datetime.sub(epoch(object.py())?)?;
        let part = |part: &str| since.getattr(part)?.extract::<i64>().map(i128::from);
        let seconds = part("days")? * 86_400 + part("seconds")?;
        let micros = seconds * 1_000_000 + part("microseconds")?;
        Ok(Some(Time { micros }))
    }

    /// `begin`, `end` and `time`: an aware `datetime` or milliseconds since the epoch.
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

/// The error for an argument of a type that it cannot have.
pub(super) fn wrong_type(name: &str, object: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let kind = object
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{name} is {kind}: give {wanted}"))
}

/// 1970-01-01 in UTC.
fn epoch(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        let module = py.import("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let class = module.getattr("datetime")?;
        class
            .call1((1970, 1, 1, 0, 0, 0, 0, utc))
            .map(Bound::unbind)
    })?;
    Ok(epoch.bind(py))
}

/// The `datetime` in UTC of milliseconds since the epoch.
pub(super) fn datetime<'py>(py: Python<'py>, millis: i64) -> PyResult<Bound<'py, PyAny>> {
    let days = i32::try_from(millis.div_euclid(86_400_000)).unwrap_or(i32::MAX);
    let rest = millis.rem_euclid(86_400_000);
    let (seconds, micros) = (rest / 1000, rest % 1000 * 1000);
    let (seconds, micros) = (
        i32::try_from(seconds).unwrap_or_default(),
        i32::try_from(micros).unwrap_or_default(),
    );
    epoch(py)?.add(PyDelta::new(py, days, seconds, micros, false)?)
}

/// A duration: seconds, whole or not, or a `timedelta`.
pub(super) fn duration(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = if object.is_instance_of::<PyDelta>() {
        object.call_method0("total_seconds")?.extract::<f64>()?
    } else if object.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, object, "seconds or a timedelta"));
    } else {
        let number = object.extract::<f64>();
        number.map_err(|_| wrong_type(name, object, "seconds or a timedelta"))?
    };
    // Longer than any process lives, and short enough to be added to a point in time.
    const LONGEST: f64 = 100.0 * 366.0 * 86_400.0;
    let too_long = seconds > LONGEST && seconds.is_finite();
    let seconds = if too_long { LONGEST } else { seconds };
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| invalid(name, seconds, "it is a number that is not negative"))
}

/// Text of an argument: `str`, or `bytes` of UTF-8.
#[inline]
pub(super) fn text<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    if let Ok(text) = object.cast::<PyString>() {
        return text.to_str();
    }
    let Ok(bytes) = object.cast::<PyBytes>() else {
        return Err(wrong_type(name, object, "str, or bytes of UTF-8"));
    };
    let text = std::str::from_utf8(bytes.as_bytes());
    text.map_err(|_| {
        invalid(
            name,
            bytes
                .repr()
                .map_or_else(|_| String::new(), |r| r.to_string()),
            "it is not UTF-8",
        )
    })
}

/// The items of an iterable that is no text, held for as long as their bytes are borrowed.
pub(super) fn items<'py>(
    name: &str,
    object: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Err(wrong_type(name, object, "a sequence"));
    }
    object
        .try_iter()
        .map_err(|_| wrong_type(name, object, "a sequence"))?
        .collect()
}

/// Tags of a filter: one, several joined by ``||``, or a sequence; ``None`` and ``"*"`` pass all.
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
/// An integer is refused, for it could be an offset as well as a time.
pub(super) fn limit(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Limit> {
    const WANTED: &str = "\"earliest\", \"latest\", an aware datetime or {queue: offset}";
    if let Ok(word) = object.cast::<PyString>() {
        return match word.to_str()? {
            "earliest" => Ok(Limit::Earliest),
            "latest" => Ok(Limit::Latest),
            other => Err(invalid(
                name,
                format!("{other:?}"),
                &format!("it is {WANTED}"),
            )),
        };
    }
    if let Some(time) = Time::of_datetime(name, object)? {
        return Ok(Limit::Time(time.at_or_after()));
    }
    if object.is_instance_of::<PyInt>() {
        let text = format!(
            "{name} is the integer {object}: offset or time? Give {{queue: offset}} or an aware \
             datetime"
        );
        return Err(PyTypeError::new_err(text));
    }
    let Ok(mapping) = object.cast::<PyMapping>() else {
        return Err(wrong_type(name, object, WANTED));
    };
    let mut offsets = BTreeMap::new();
    for item in mapping.items()? {
        let (queue, offset) = item.extract::<(Queue, Offset)>()?;
        let offset = u64::try_from(offset.0);
        let offset = offset.map_err(|_| invalid(name, object, "offsets count from 0"))?;
        offsets.insert(queue.0, offset);
    }
    Ok(Limit::Offsets(offsets))
}

/// How many queues a topic is to have.
pub(super) fn queue_count(queues: &Bound<'_, PyAny>) -> PyResult<u32> {
    let number = whole_number(queues)?.and_then(|number| u32::try_from(number).ok());
    let reason = format!("a topic has 1 to {TOPIC_QUEUES_MAX} queues");
    number.ok_or_else(|| invalid("queues", queues, &reason))
}
