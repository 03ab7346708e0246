//! The arguments of `send_batch` as rows.
//!
//! First all Python objects are referenced, then their bytes are borrowed. So the core can read the
//! bytes detached, even if another thread changes the lists.

use super::convert::{Queue, at_most, each, items, text};
use super::draft::{
    HeaderBytes, Pair, Pairs, Texts, as_pair, body_or_null, born, check_tombstone, header_bytes,
    headers, keys_of, pair_texts, pairs,
};
use super::edge;
use super::errors::in_row;
use super::mapping::{is_mapping, is_sequence};
use super::signals::check_signals;
use crate::Draft;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::borrow::Cow;

/// The entries of all rows in one list, and the end index of each row.
struct Flat<T> {
    all: Vec<T>,
    ends: Vec<usize>,
}

impl<T> Flat<T> {
    fn row(&self, row: usize) -> &[T] {
        let start = row
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied();
        let end = self.ends.get(row).copied().unwrap_or_default();
        self.all
            .get(start.unwrap_or_default()..end)
            .unwrap_or_default()
    }

    fn map<'a, U>(
        &'a self,
        change: impl FnOnce(&'a Vec<T>) -> PyResult<Vec<U>>,
    ) -> PyResult<Flat<U>> {
        Ok(Flat {
            all: change(&self.all)?,
            ends: self.ends.clone(),
        })
    }
}

/// One value for all rows, or one per row.
enum Each<T, U> {
    All(T),
    Row(U),
}

/// The Python objects that were passed.
pub(super) struct BatchGiven<'py> {
    bodies: Vec<Bound<'py, PyAny>>,
    keys: Option<Flat<Bound<'py, PyAny>>>,
    tags: Each<Option<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>>,
    properties: Each<Pairs<'py>, Flat<Pair<'py>>>,
    headers: Each<Pairs<'py>, Flat<Pair<'py>>>,
}

impl<'py> BatchGiven<'py> {
    pub(super) fn new(
        bodies: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        tags: Option<&Bound<'py, PyAny>>,
        properties: Option<&Bound<'py, PyAny>>,
        given_headers: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<BatchGiven<'py>> {
        let bodies = each("bodies", bodies, "a sequence", |row, body| {
            edge::check_body(&body).map_err(|error| in_row(body.py(), error, row))?;
            Ok(body)
        })?;
        let rows = bodies.len();
        let keys = keys
            .map(|keys| flat("keys", keys, rows, key_objects))
            .transpose()?;
        let tags = match tags {
            Some(tags) if !is_text(tags) => Each::Row(one_per_row("tags", tags, rows)?),
            one => Each::All(one.cloned()),
        };
        let properties = match properties {
            None => Each::All(Pairs::new()),
            Some(one) if is_mapping(one)? => Each::All(pairs(one)?),
            Some(many) => Each::Row(flat("properties", many, rows, |object| pairs(object))?),
        };
        let headers = match given_headers {
            None => Each::All(Pairs::new()),
            Some(one) if is_one_list(one)? => Each::All(headers(one)?),
            Some(many) => Each::Row(flat("headers", many, rows, |object| headers(object))?),
        };
        Ok(BatchGiven {
            bodies,
            keys,
            tags,
            properties,
            headers,
        })
    }
}

/// Whether the headers apply to all rows: then they are a list of pairs, not a list of lists.
fn is_one_list(headers: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !is_sequence(headers)? {
        return Ok(false);
    }
    match headers.len()? {
        0 => Ok(true),
        _ => Ok(as_pair(&headers.get_item(0)?).is_some_and(|(name, _)| is_text(&name))),
    }
}

fn is_text(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>()
}

fn one_per_row<'py>(
    name: &str,
    object: &Bound<'py, PyAny>,
    rows: usize,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let entries = at_most(name, object, "a sequence", rows)?;
    if entries.len() == rows {
        return Ok(entries);
    }
    let counted = |count| match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    };
    let found = match object.len() {
        Ok(count) => counted(count),
        Err(_) if entries.len() > rows => format!("more than {rows} entries"),
        Err(_) => counted(entries.len()),
    };
    let bodies = if rows == 1 { "body" } else { "bodies" };
    let text = format!("{name} has {found} for {rows} {bodies}; pass one entry per body");
    Err(PyValueError::new_err(text))
}

/// Splits each entry into its parts; a ``None`` entry has no parts.
fn flat<'py, T>(
    name: &str,
    object: &Bound<'py, PyAny>,
    rows: usize,
    parts: impl Fn(&Bound<'py, PyAny>) -> PyResult<Vec<T>>,
) -> PyResult<Flat<T>> {
    let mut flat = Flat {
        all: Vec::with_capacity(rows),
        ends: Vec::with_capacity(rows),
    };
    for (row, entry) in one_per_row(name, object, rows)?.iter().enumerate() {
        check_signals(object.py(), row)?;
        if !entry.is_none() {
            flat.all
                .extend(parts(entry).map_err(|error| in_row(object.py(), error, row))?);
        }
        flat.ends.push(flat.all.len());
    }
    Ok(flat)
}

fn key_objects<'py>(entry: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if is_text(entry) {
        Ok(vec![entry.clone()])
    } else {
        items("keys", entry)
    }
}

/// The bytes of the arguments, borrowed from [`BatchGiven`].
pub(super) struct BatchRows<'a> {
    /// `None` stands for no body.
    bodies: Vec<Option<Cow<'a, [u8]>>>,
    keys: Option<Flat<&'a str>>,
    /// The first key of each row if it is not text; empty if all are.
    byte_keys: Vec<Option<&'a [u8]>>,
    tags: Each<Option<&'a str>, Vec<Option<&'a str>>>,
    properties: Each<Vec<Texts<'a>>, Flat<Texts<'a>>>,
    headers: Each<Vec<HeaderBytes<'a>>, Flat<HeaderBytes<'a>>>,
    queue: Option<u32>,
    born_timestamp: Option<i64>,
}

impl<'a> BatchRows<'a> {
    pub(super) fn new(
        py: Python<'_>,
        takes_null: bool,
        given: &'a BatchGiven<'_>,
        queue: Option<Queue>,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<BatchRows<'a>> {
        let mut bodies = Vec::with_capacity(given.bodies.len());
        for (row, object) in given.bodies.iter().enumerate() {
            check_signals(py, row)?;
            bodies.push(body_or_null(takes_null, object).map_err(|error| in_row(py, error, row))?);
        }
        let (keys, byte_keys) = match &given.keys {
            None => (None, Vec::new()),
            Some(keys) => row_keys(py, keys)?,
        };
        let tags = match &given.tags {
            Each::All(tag) => Each::All(tag.as_ref().map(|tag| text("tags", tag)).transpose()?),
            Each::Row(tags) => Each::Row(row_tags(py, tags)?),
        };
        let properties = match &given.properties {
            Each::All(pairs) => Each::All(pair_texts(pairs)?),
            Each::Row(rows) => Each::Row(rows.map(pair_texts)?),
        };
        let headers = match &given.headers {
            Each::All(pairs) => Each::All(header_bytes(pairs)?),
            Each::Row(rows) => Each::Row(rows.map(header_bytes)?),
        };
        let born_timestamp = timestamp.map(born).transpose()?;
        let rows = BatchRows {
            bodies,
            keys,
            byte_keys,
            tags,
            properties,
            headers,
            queue: queue.map(|queue| queue.0),
            born_timestamp,
        };
        if rows.bodies.iter().any(Option::is_none) {
            for (row, draft) in rows.drafts().enumerate() {
                check_signals(py, row)?;
                check_tombstone(&draft).map_err(|error| in_row(py, error, row))?;
            }
        }
        Ok(rows)
    }

    /// The messages in their order.
    pub(super) fn drafts(&self) -> impl Iterator<Item = Draft<'_>> {
        self.bodies.iter().enumerate().map(|(row, body)| Draft {
            body: body.as_deref().unwrap_or_default(),
            is_null: body.is_none(),
            key: self.byte_keys.get(row).copied().flatten(),
            keys: self.keys.as_ref().map_or(&[], |keys| keys.row(row)),
            tags: match &self.tags {
                Each::All(tag) => *tag,
                Each::Row(tags) => tags.get(row).copied().flatten(),
            },
            properties: match &self.properties {
                Each::All(pairs) => pairs,
                Each::Row(rows) => rows.row(row),
            },
            headers: match &self.headers {
                Each::All(pairs) => pairs,
                Each::Row(rows) => rows.row(row),
            },
            queue: self.queue,
            born_timestamp: self.born_timestamp,
            ..Draft::default()
        })
    }
}

/// The keys of each row that are text, and its first key if that is not.
#[allow(clippy::type_complexity, reason = "both are fields of `BatchRows`")]
fn row_keys<'a>(
    py: Python<'_>,
    given: &'a Flat<Bound<'_, PyAny>>,
) -> PyResult<(Option<Flat<&'a str>>, Vec<Option<&'a [u8]>>)> {
    let mut keys = Flat {
        all: Vec::with_capacity(given.all.len()),
        ends: Vec::with_capacity(given.ends.len()),
    };
    let mut byte_keys = Vec::new();
    for row in 0..given.ends.len() {
        check_signals(py, row)?;
        let found = keys_of("key", given.row(row));
        let (first, texts) = found.map_err(|error| in_row(py, error, row))?;
        keys.all.extend(texts);
        keys.ends.push(keys.all.len());
        if first.is_some() || !byte_keys.is_empty() {
            byte_keys.resize(row, None);
            byte_keys.push(first);
        }
    }
    Ok((Some(keys), byte_keys))
}

fn row_tags<'a>(py: Python<'_>, tags: &'a [Bound<'_, PyAny>]) -> PyResult<Vec<Option<&'a str>>> {
    let entry = |(row, tag): (usize, &'a Bound<'_, PyAny>)| {
        check_signals(py, row)?;
        match tag.is_none() {
            true => Ok(None),
            false => text("tags", tag)
                .map(Some)
                .map_err(|error| in_row(py, error, row)),
        }
    };
    tags.iter().enumerate().map(entry).collect()
}
