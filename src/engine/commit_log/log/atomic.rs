//! Atomic batches: a begin record, the rows and an end record, appended under one lock.
//!
//! Nothing can follow an unfinished batch. So recovery finds it at the end of the log, and cuts the
//! log at its begin record. The two records are ordinary messages of a system topic:
//!
//! ```text
//! topic  rmq_sys_forebay_atomic, queue 0
//! tag    begin | end
//! body   16 bytes that name the batch, u32 number of rows (big-endian)
//! ```

use crate::engine::{Appended, Topic};
use crate::error::Result;
use crate::num::short;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::{TAGS, find};
use crate::record::{Batch, Draft, Form};
use std::sync::atomic::{AtomicU64, Ordering};

/// The topic of the two records.
pub const TOPIC: &str = "rmq_sys_forebay_atomic";

/// Identifies a batch.
pub type BatchId = [u8; 16];

/// One of the two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The rows follow.
    Begin(BatchId),
    /// The rows are complete.
    End(BatchId),
}

/// Encodes the begin and end records of a batch of `rows` rows.
pub fn encode(rows: usize, form: Form, clock_ms: i64) -> Result<(Batch, Batch)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed) ^ u64::from(std::process::id()) << 32;
    let mut body = [0u8; 20];
    body[..8].copy_from_slice(&clock_ms.to_be_bytes());
    body[8..16].copy_from_slice(&count.to_be_bytes());
    body[16..].copy_from_slice(&short(rows).to_be_bytes());
    let one = |tag| {
        let mut batch = form.batch();
        let draft = Draft {
            body: &body,
            tags: Some(tag),
            ..Draft::default()
        };
        batch.push(TOPIC, 0, &draft, clock_ms).map(|()| batch)
    };
    Ok((one("begin")?, one("end")?))
}

/// Passes the batches to `append`, enclosed by the two records, which belong to the topic
/// `markers`. Fills `appended`, which must be empty, with the places of the rows. `form` is that of
/// the store.
///
/// # Errors
///
/// Those of `append`.
pub fn append(
    markers: &Topic,
    form: Form,
    batches: &mut [(&Topic, &mut Batch)],
    appended: &mut Appended,
    append: impl FnOnce(&mut [(&Topic, &mut Batch)], &mut Appended) -> Result<()>,
) -> Result<()> {
    let rows = batches.iter().map(|(_, batch)| batch.len()).sum();
    let clocks = batches.iter().map(|(_, batch)| batch.clock_ms());
    let clock_ms = clocks.max().unwrap_or_default();
    let (mut begin, mut end) = encode(rows, form, clock_ms)?;
    let mut all: Vec<(&Topic, &mut Batch)> = Vec::with_capacity(batches.len() + 2);
    all.push((markers, &mut begin));
    let rows = batches.iter_mut();
    all.extend(rows.map(|(topic, batch)| (*topic, &mut **batch)));
    all.push((markers, &mut end));
    append(&mut all, appended)?;
    appended.rows.pop();
    appended.rows.remove(0);
    Ok(())
}

/// The boundary that a record marks, if any.
#[inline]
pub fn boundary(record: &Record<'_>) -> Option<Boundary> {
    if record.topic() != TOPIC.as_bytes() {
        return None;
    }
    let id = *record.stored_body().first_chunk::<16>()?;
    match find(record.raw_properties(), TAGS.as_bytes())? {
        b"begin" => Some(Boundary::Begin(id)),
        b"end" => Some(Boundary::End(id)),
        _ => None,
    }
}
