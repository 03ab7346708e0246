//! The columns of a record batch, read by row.

use super::values::{Broken, Bytes, Integers, Lists, Maybe, Times};
use crate::error::{Error, Result};
use crate::record::Draft;
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, StructArray};

/// The meaning of the columns of a batch.
pub(super) struct Plan {
    pub(super) body: usize,
    pub(super) keys: Option<(usize, KeyForm)>,
    pub(super) tags: Option<usize>,
    pub(super) properties: Option<usize>,
    pub(super) headers: Option<usize>,
    pub(super) queue: Option<usize>,
    pub(super) timestamp: Option<usize>,
}

/// How a column holds keys: one in each row, or several with spaces between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyForm {
    One,
    Stored,
}

/// The lists of a message, which are reused for each row.
#[derive(Default)]
pub(super) struct Parts<'a> {
    /// The first key, if it is not text.
    key: Option<&'a [u8]>,
    keys: Vec<&'a str>,
    properties: Vec<(&'a str, &'a str)>,
    headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

impl<'a> Parts<'a> {
    pub(super) fn clear(&mut self) {
        self.key = None;
        self.keys.clear();
        self.properties.clear();
        self.headers.clear();
    }

    /// Adds a key. Only the first may be other bytes than text.
    fn add_key(&mut self, key: &'a [u8]) -> Result<()> {
        let is_first = self.keys.is_empty() && self.key.is_none();
        match text("keys", key) {
            Ok(key) => self.keys.push(key),
            Err(_) if is_first => self.key = Some(key),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The columns of one batch, for reading by row.
pub(super) struct Columns<'a> {
    body: Bytes<'a>,
    keys: Option<(Keys<'a>, KeyForm)>,
    tags: Option<Bytes<'a>>,
    properties: Option<Properties<'a>>,
    headers: Option<Properties<'a>>,
    queue: Option<Integers<'a>>,
    timestamp: Option<Times<'a>>,
}

enum Keys<'a> {
    Text(Bytes<'a>),
    Lists(Lists<'a>, Bytes<'a>),
}

/// A name, and its value or null.
type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

pub(super) struct Properties<'a> {
    lists: Lists<'a>,
    entries: &'a StructArray,
    names: Bytes<'a>,
    values: Bytes<'a>,
}

impl<'a> Columns<'a> {
    /// `None` if the batch does not match the schema of the plan.
    pub(super) fn new(plan: &Plan, batch: &'a RecordBatch) -> Option<Columns<'a>> {
        let column = |index: usize| -> Option<&'a dyn Array> {
            let array = batch.columns().get(index)?;
            Some(array.as_ref())
        };
        let keys = match plan.keys {
            Some((index, form)) => Some((Keys::new(column(index)?)?, form)),
            None => None,
        };
        let tags = match plan.tags {
            Some(index) => Some(Bytes::new(column(index)?)?),
            None => None,
        };
        let properties = match plan.properties {
            Some(index) => Some(Properties::new(column(index)?)?),
            None => None,
        };
        let headers = match plan.headers {
            Some(index) => Some(Properties::new(column(index)?)?),
            None => None,
        };
        let queue = match plan.queue {
            Some(index) => Some(Integers::new(column(index)?)?),
            None => None,
        };
        let timestamp = match plan.timestamp {
            Some(index) => Some(Times::new(column(index)?)?),
            None => None,
        };
        Some(Columns {
            body: Bytes::new(column(plan.body)?)?,
            keys,
            tags,
            properties,
            headers,
            queue,
            timestamp,
        })
    }

    /// The message of a row. `parts` must be clear; the message borrows from them.
    #[inline]
    pub(super) fn draft<'b>(&self, row: usize, parts: &'b mut Parts<'a>) -> Result<Draft<'b>>
    where
        'a: 'b,
    {
        let body = known("body", self.body.get(row))?;
        if let Some((column, form)) = &self.keys {
            column.read(row, *form, parts)?;
        }
        if let Some(column) = &self.properties {
            column.read("properties", row, &mut parts.properties)?;
        }
        if let Some(column) = &self.headers {
            for entry in column.entries("headers", row)? {
                let (name, value) = entry?;
                parts.headers.push((text("headers", name)?, value));
            }
        }
        let queue = match &self.queue {
            Some(column) => queue("queue", column, row)?,
            None => None,
        };
        let born_timestamp = match &self.timestamp {
            Some(column) => known("timestamp", column.get(row))?,
            None => None,
        };
        Ok(Draft {
            body: body.unwrap_or_default(),
            is_null: body.is_none(),
            key: parts.key,
            keys: &parts.keys,
            tags: word("tags", self.tags.as_ref(), row)?,
            properties: &parts.properties,
            headers: &parts.headers,
            queue,
            born_timestamp,
            ..Draft::default()
        })
    }
}

impl<'a> Keys<'a> {
    fn new(array: &'a dyn Array) -> Option<Keys<'a>> {
        match Lists::new(array) {
            Some((lists, child)) => Some(Keys::Lists(lists, Bytes::new(child)?)),
            None => Some(Keys::Text(Bytes::new(array)?)),
        }
    }

    fn read(&self, row: usize, form: KeyForm, parts: &mut Parts<'a>) -> Result<()> {
        match self {
            Keys::Text(column) => {
                let Some(found) = known("keys", column.get(row))? else {
                    return Ok(());
                };
                match form {
                    KeyForm::One => parts.add_key(found)?,
                    KeyForm::Stored => {
                        let found = text("keys", found)?.split(' ');
                        parts.keys.extend(found.filter(|key| !key.is_empty()));
                    }
                }
            }
            Keys::Lists(lists, elements) => {
                for index in known("keys", lists.get(row))?.unwrap_or_default() {
                    let Some(key) = known("keys", elements.get(index))? else {
                        return Err(Error::option(
                            "keys",
                            "a list with null",
                            "a key must be text",
                        ));
                    };
                    parts.add_key(key)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> Properties<'a> {
    pub(super) fn new(array: &'a dyn Array) -> Option<Properties<'a>> {
        let (lists, child) = Lists::new(array)?;
        let entries = child.as_struct_opt()?;
        let [names, values] = entries.columns() else {
            return None;
        };
        Some(Properties {
            lists,
            entries,
            names: Bytes::new(names.as_ref())?,
            values: Bytes::new(values.as_ref())?,
        })
    }

    /// Adds the pairs of a row. Errors name `column`.
    fn read(
        &self,
        column: &str,
        row: usize,
        properties: &mut Vec<(&'a str, &'a str)>,
    ) -> Result<()> {
        for entry in self.entries(column, row)? {
            let (name, Some(value)) = entry? else {
                let reason = "a property must have a name and a value";
                return Err(Error::option(column, "an entry with null", reason));
            };
            properties.push((text(column, name)?, text(column, value)?));
        }
        Ok(())
    }

    /// The entries of a row: a name, and a value that may be null. Errors name `column`.
    pub(super) fn entries(
        &self,
        column: &str,
        row: usize,
    ) -> Result<impl Iterator<Item = Result<Entry<'a>>>> {
        let range = known(column, self.lists.get(row))?.unwrap_or_default();
        Ok(range.map(move |index| {
            let there = index < self.entries.len() && self.entries.is_valid(index);
            let name = known(column, self.names.get(index))?.filter(|_| there);
            let Some(name) = name else {
                let reason = "an entry must have a name";
                return Err(Error::option(column, "an entry with null", reason));
            };
            Ok((name, known(column, self.values.get(index))?))
        }))
    }
}

#[inline]
pub(super) fn known<T>(name: &str, value: Maybe<T>) -> Result<Option<T>> {
    value.map_err(|Broken| {
        let reason = "its offsets point outside the array";
        Error::option(&format!("column {name:?}"), "broken", reason)
    })
}

#[inline]
pub(super) fn text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str> {
    str::from_utf8(bytes).map_err(|_| {
        let shown: String = String::from_utf8_lossy(bytes).chars().take(64).collect();
        Error::option(name, format!("{shown:?}"), "not UTF-8")
    })
}

/// The value of a row in a column of bytes, as text.
#[inline]
pub(super) fn word<'a>(
    name: &str,
    column: Option<&Bytes<'a>>,
    row: usize,
) -> Result<Option<&'a str>> {
    match column {
        Some(column) => known(name, column.get(row))?
            .map(|bytes| text(name, bytes))
            .transpose(),
        None => Ok(None),
    }
}

/// The queue that a row names.
#[inline]
pub(super) fn queue(name: &str, column: &Integers<'_>, row: usize) -> Result<Option<u32>> {
    let Some(number) = known(name, column.get(row))? else {
        return Ok(None);
    };
    match u16::try_from(number) {
        Ok(queue) => Ok(Some(queue.into())),
        Err(_) => Err(Error::must(name, number, "be between 0 and 65535")),
    }
}
