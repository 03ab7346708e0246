//! Tests of Kafka's form of a record.

mod codecs;
mod forms;
mod golden;

use super::entry::Headers;
use super::{Entry, Opened};
use crate::record::common::Flaw;

type Bytes = Option<Vec<u8>>;

/// A record with its own memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    offset: u64,
    timestamp: i64,
    key: Bytes,
    value: Bytes,
    headers: Vec<(Vec<u8>, Bytes)>,
}

impl From<Entry<'_>> for Owned {
    fn from(entry: Entry<'_>) -> Owned {
        let own = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        let headers = entry.headers.iter();
        Owned {
            offset: entry.offset,
            timestamp: entry.timestamp,
            key: own(entry.key),
            value: own(entry.value),
            headers: headers
                .map(|(name, value)| (name.to_vec(), own(value)))
                .collect(),
        }
    }
}

/// All records of a batch.
fn read(bytes: &[u8], check: bool) -> Result<Vec<Owned>, Flaw> {
    let mut batch = Opened::open(bytes.to_vec(), check)?;
    let mut found = Vec::new();
    while let Some(entry) = batch.next()? {
        found.push(entry.into());
    }
    Ok(found)
}

/// A batch of format 2 whose records, `count` of them, are `records`.
fn batch(attributes: u16, count: i32, records: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&5u64.to_be_bytes());
    bytes.extend_from_slice(&i32::try_from(49 + records.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 2, 0, 0, 0, 0]);
    bytes.extend_from_slice(&attributes.to_be_bytes());
    bytes.extend_from_slice(&(count - 1).max(0).to_be_bytes());
    bytes.extend_from_slice(&1000u64.to_be_bytes());
    bytes.extend_from_slice(&2000u64.to_be_bytes());
    bytes.extend_from_slice(&[0xFF; 14]);
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(records);
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// A message of format 0 or 1 with a null key. `timestamp`: only in format 1.
fn message(offset: u64, attributes: u8, timestamp: Option<i64>, value: &[u8]) -> Vec<u8> {
    let mut tail = vec![u8::from(timestamp.is_some()), attributes];
    tail.extend(timestamp.iter().flat_map(|time| time.to_be_bytes()));
    tail.extend_from_slice(&(-1i32).to_be_bytes());
    tail.extend_from_slice(&(value.len() as i32).to_be_bytes());
    tail.extend_from_slice(value);
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(tail.len() as i32 + 4).to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&tail).to_be_bytes());
    bytes.extend_from_slice(&tail);
    bytes
}

/// A record without headers.
fn plain(offset: u64, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Owned {
    let headers = Headers::default();
    let entry = Entry {
        offset,
        timestamp,
        key,
        value,
        headers,
    };
    entry.into()
}
