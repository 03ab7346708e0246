//! Encodes messages into batches of format 2, before their place in a partition is known.
//!
//! A batch of a store gathers rows for several partitions. Each partition gets one batch of the
//! format, or several where one would be longer than a segment may be. The offset of a batch and
//! the epoch of its leader lie outside the checksum, so they are stored once the place is known.

use super::compress::Codec;
use super::contents::{Contents, LENGTH_MAX, further_keys, times_text};
use super::header::HEAD_LEN;
use super::own;
use super::pack::pack;
use super::varint::Writer;
use crate::error::{Error, Result};
use crate::num::short;
use crate::plant::{Bug, planted};
use crate::record::common::check::{check_born, check_key, check_tags, too_large};
use crate::record::common::room::room;
use crate::record::common::{Draft, names};
use std::collections::HashMap;

/// First byte of the attributes, which the checksum covers first.
const ATTRIBUTES: usize = 21;
/// Bit of the attributes: the time is that of the append.
const APPEND_TIME: u16 = 0x8;

/// What the batches of a store have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Maximum bytes of a batch before it is packed.
    pub batch_len_max: usize,
    /// Maximum bytes of a value.
    pub value_len_max: usize,
    /// How records are packed.
    pub codec: Codec,
    /// Whether the records get the time of their append.
    pub append_time: bool,
}

/// Where a row went.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace {
    /// The partition.
    pub queue: u32,
    /// Number of its part.
    pub part: u32,
    /// Its number in the part.
    pub delta: u32,
}

/// One batch of the format.
#[derive(Debug, Default)]
pub struct Part {
    queue: u32,
    /// The batch up to `end`; after it, remains of earlier ones.
    bytes: Vec<u8>,
    end: usize,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

/// Rows of one topic.
#[derive(Debug)]
pub struct Batch {
    form: Form,
    rows: Vec<RowPlace>,
    /// The first `used` are filled; the others keep their memory.
    parts: Vec<Part>,
    used: usize,
    /// The last part of each partition.
    newest: HashMap<u32, u32, foldhash::fast::RandomState>,
    clock_ms: i64,
    encoded_len: usize,
    packed: Vec<u8>,
    finished: bool,
}

impl Batch {
    /// An empty batch. Does not allocate.
    pub fn new(form: Form) -> Batch {
        Batch {
            form,
            rows: Vec::new(),
            parts: Vec::new(),
            used: 0,
            newest: HashMap::default(),
            clock_ms: 0,
            encoded_len: 0,
            packed: Vec::new(),
            finished: false,
        }
    }

    /// Becomes `empty`, but keeps its memory.
    pub fn renew(&mut self, form: Form) {
        self.form = form;
        self.clear();
    }

    /// What the batches have in common.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Removes the rows but keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.used = 0;
        self.newest.clear();
        self.clock_ms = 0;
        self.encoded_len = 0;
        self.finished = false;
    }

    /// The rows, in order.
    #[inline]
    pub fn rows(&self) -> &[RowPlace] {
        &self.rows
    }

    /// The batches of the format.
    #[inline]
    pub fn parts(&self) -> &[Part] {
        self.parts.get(..self.used).unwrap_or_default()
    }

    /// As [`Batch::parts`], mutable.
    #[inline]
    pub fn parts_mut(&mut self) -> &mut [Part] {
        self.parts.get_mut(..self.used).unwrap_or_default()
    }

    /// The sender's clock when the last row was encoded, in ms.
    pub fn clock_ms(&self) -> i64 {
        self.clock_ms
    }

    /// Bytes of all rows before they are packed.
    pub fn encoded_len(&self) -> usize {
        self.encoded_len
    }

    /// Bytes of memory that the batch holds.
    pub fn capacity(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.bytes.capacity()).sum();
        parts + self.packed.capacity() + self.rows.capacity() * size_of::<RowPlace>()
    }

    /// Encodes a message for a partition. `clock_ms` applies if the draft has no time. After an
    /// error the batch is unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]; [`Error::InvalidOption`] for a tag, a time or the name of a property
    /// that is not allowed.
    #[inline]
    pub fn push(&mut self, queue: u32, draft: &Draft<'_>, clock_ms: i64) -> Result<()> {
        check_value(&self.form, draft)?;
        match Contents::plain(draft) {
            Some(contents) if self.add_short(queue, &contents, clock_ms) => Ok(()),
            Some(contents) => self.add(queue, &contents, clock_ms),
            None => {
                check_labels(draft)?;
                self.push_checked(queue, draft, further_keys(draft).as_deref(), clock_ms)
            }
        }
    }

    /// [`Batch::push`] of a message that has few bytes, no headers and no time, to the partition of
    /// the last row. Returns false for any other message, which it does not add.
    ///
    /// Inlined, so that a caller that makes a draft need not store it.
    #[inline(always)]
    pub fn push_short(&mut self, queue: u32, draft: &Draft<'_>, clock_ms: i64) -> bool {
        if draft.is_null
            || draft.born_timestamp.is_some()
            || draft.body.len() > self.form.value_len_max
        {
            return false;
        }
        let contents = Contents::plain(draft);
        contents.is_some_and(|contents| self.add_short(queue, &contents, clock_ms))
    }

    /// [`Batch::push`] for a message that a store has accepted before, with any length of the value
    /// and without a key for a null one.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]; [`Error::InvalidOption`] for a header with a name of Forebay's own.
    pub fn push_accepted(&mut self, queue: u32, draft: &Draft<'_>, clock_ms: i64) -> Result<()> {
        check_headers(draft)?;
        self.push_checked(queue, draft, further_keys(draft).as_deref(), clock_ms)
    }

    /// [`Batch::push`] for a message that was accepted before. `further`: the keys after the first.
    pub(super) fn push_checked(
        &mut self,
        queue: u32,
        draft: &Draft<'_>,
        further: Option<&str>,
        clock_ms: i64,
    ) -> Result<()> {
        let times = times_text(draft);
        let contents = Contents::new(draft, further, times.as_deref());
        self.add(queue, &contents, clock_ms)
    }

    /// Adds a record to the last part if it is short and the part is its partition's and has room.
    /// Otherwise returns false.
    #[inline(always)]
    fn add_short(&mut self, queue: u32, contents: &Contents<'_>, clock_ms: i64) -> bool {
        let last = self.used.wrapping_sub(1);
        let Some(part) = self.parts.get_mut(last).filter(|it| it.queue == queue) else {
            return false;
        };
        let timestamp = contents.draft().born_timestamp.unwrap_or(clock_ms);
        let place = (timestamp - part.base_timestamp, part.count);
        let len_max = LENGTH_MAX + contents.short_len_max();
        if part.end + len_max > self.form.batch_len_max || !contents.is_short(place) {
            return false;
        }
        let to = room(&mut part.bytes, part.end, len_max);
        let len = contents.write_short(to, place);
        part.end += len;
        part.count += 1;
        part.max_timestamp = part.max_timestamp.max(timestamp);
        self.encoded_len += len;
        self.clock_ms = clock_ms;
        self.rows.push(RowPlace {
            queue,
            part: short(last),
            delta: place.1,
        });
        true
    }

    /// Adds a record.
    #[inline(always)]
    fn add(&mut self, queue: u32, contents: &Contents<'_>, clock_ms: i64) -> Result<()> {
        let timestamp = contents.draft().born_timestamp.unwrap_or(clock_ms);
        let sizes = contents.sizes();
        let len_max = HEAD_LEN + LENGTH_MAX + sizes.len_max();
        if len_max > self.form.batch_len_max {
            return Err(too_large("record", len_max, self.form.batch_len_max));
        }
        let number = self.part_for(queue, LENGTH_MAX + sizes.len_max(), timestamp);
        let Some(part) = self.parts.get_mut(number as usize) else {
            unreachable!("the part was found or made just now")
        };
        let delta = part.count;
        let place = (timestamp - part.base_timestamp, delta);
        let len = sizes.total(place.0, place.1);
        contents.write(room(&mut part.bytes, part.end, len), &sizes, place);
        part.end += len;
        part.count += 1;
        part.max_timestamp = part.max_timestamp.max(timestamp);
        self.encoded_len += len;
        if delta == 0 {
            self.encoded_len += HEAD_LEN;
        }
        self.clock_ms = clock_ms;
        self.rows.push(RowPlace {
            queue,
            part: number,
            delta,
        });
        Ok(())
    }

    /// The number of the part for a record of up to `len` bytes: the last one of its partition if
    /// that has room.
    #[inline]
    fn part_for(&mut self, queue: u32, len: usize, timestamp: i64) -> u32 {
        let last = self.used.wrapping_sub(1);
        if let Some(part) = self.parts().get(last)
            && part.queue == queue
            && part.end + len <= self.form.batch_len_max
        {
            return short(last);
        }
        self.other_part_for(queue, len, timestamp)
    }

    /// [`Batch::part_for`] if it is not the last part.
    #[inline(never)]
    fn other_part_for(&mut self, queue: u32, len: usize, timestamp: i64) -> u32 {
        let known = self.newest.get(&queue).copied();
        if let Some(number) = known
            && let Some(part) = self.parts.get(number as usize)
            && part.end + len <= self.form.batch_len_max
        {
            return number;
        }
        if self.used == self.parts.len() {
            self.parts.push(Part::default());
        }
        if let Some(part) = self.parts.get_mut(self.used) {
            part.begin(queue, timestamp);
        }
        // A batch for one partition needs no table.
        if self.used > 0 {
            if self.used == 1
                && let Some(first) = self.parts.first()
            {
                self.newest.insert(first.queue, 0);
            }
            self.newest.insert(queue, short(self.used));
        }
        self.used += 1;
        short(self.used) - 1
    }

    /// Bytes of all rows, before they are packed, if this message followed for the partition of the
    /// last row.
    pub fn len_with(&self, draft: &Draft<'_>, clock_ms: i64) -> usize {
        let timestamp = draft.born_timestamp.unwrap_or(clock_ms);
        let (further, times) = (further_keys(draft), times_text(draft));
        let contents = Contents::new(draft, further.as_deref(), times.as_deref());
        let last = self.parts().last();
        let (base, count) = last.map_or((timestamp, 0), |it| (it.base_timestamp, it.count));
        let len = contents.sizes().total(timestamp.wrapping_sub(base), count);
        let head = if last.is_none() { HEAD_LEN } else { 0 };
        self.encoded_len + head + len
    }

    /// Completes the batches of the format, except for their places. `now_ms` is the time of the
    /// append. A second call does nothing, and no row may follow.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the library that packs fails.
    pub fn finish(&mut self, now_ms: i64) -> Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let form = self.form;
        let packed = &mut self.packed;
        let parts = self.parts.get_mut(..self.used).unwrap_or_default();
        parts
            .iter_mut()
            .try_for_each(|part| part.finish(&form, now_ms, packed))
    }
}

impl Part {
    fn begin(&mut self, queue: u32, timestamp: i64) {
        self.queue = queue;
        // The header is written when the batch is complete.
        self.end = HEAD_LEN;
        self.count = 0;
        self.base_timestamp = timestamp;
        self.max_timestamp = timestamp;
    }

    /// The partition.
    #[inline]
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The bytes of the batch.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.end).unwrap_or_default()
    }

    /// Number of its records.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The largest time of its records, in ms.
    #[inline]
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    fn finish(&mut self, form: &Form, now_ms: i64, packed: &mut Vec<u8>) -> Result<()> {
        let mut attributes = 0;
        if form.append_time {
            attributes |= APPEND_TIME;
            self.max_timestamp = now_ms;
        }
        if form.codec != Codec::None {
            let plain = self.bytes.get(HEAD_LEN..self.end).unwrap_or_default();
            let done = pack(form.codec, plain, packed, HEAD_LEN);
            let end = done.map_err(|error| {
                Error::option("compression", form.codec.word(), error.to_string())
            })?;
            // A batch that does not shrink stays as it is.
            if end < self.end {
                std::mem::swap(packed, &mut self.bytes);
                self.end = end;
                attributes |= form.codec.bits();
            }
        }
        self.put_header(attributes);
        Ok(())
    }

    fn put_header(&mut self, attributes: u16) {
        let last_delta = match planted(Bug::WrongLastOffset) {
            true => self.count,
            false => self.count.saturating_sub(1),
        };
        let mut head = Writer::new(room(&mut self.bytes, 0, HEAD_LEN));
        head.put(&[0; 8]);
        head.put(&(short(self.end) - 12).to_be_bytes());
        head.put(&[0; 4]);
        head.put(&[2]);
        head.put(&[0; 4]);
        head.put(&attributes.to_be_bytes());
        head.put(&last_delta.to_be_bytes());
        head.put(&self.base_timestamp.to_be_bytes());
        head.put(&self.max_timestamp.to_be_bytes());
        // No producer: its id, epoch and sequence are -1.
        head.put(&[0xFF; 14]);
        head.put(&self.count.to_be_bytes());
        let covered = self.bytes.get(ATTRIBUTES..self.end).unwrap_or_default();
        let crc = crc32c::crc32c(covered);
        self.set(17, crc.to_be_bytes());
    }

    /// Gives the batch its place: the offset of its first record, and the epoch of the leader.
    #[inline]
    pub fn place(&mut self, offset: u64, epoch: i32) {
        self.set(0, offset.to_be_bytes());
        self.set(12, epoch.to_be_bytes());
    }

    #[inline]
    fn set<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        let to = self.bytes.get_mut(at..).and_then(|to| to.first_chunk_mut());
        if let Some(to) = to {
            *to = bytes;
        }
    }
}

#[inline]
fn check_value(form: &Form, draft: &Draft<'_>) -> Result<()> {
    check_born(draft.born_timestamp)?;
    if draft.body.len() > form.value_len_max {
        return Err(too_large("body", draft.body.len(), form.value_len_max));
    }
    match draft.is_null && draft.first_key().is_none() {
        true => Err(null_without_key()),
        false => Ok(()),
    }
}

#[cold]
fn null_without_key() -> Error {
    let reason = "a message without a body is a tombstone, which must have a key";
    Error::option("body", "None", reason)
}

fn check_labels(draft: &Draft<'_>) -> Result<()> {
    if let Some(tags) = draft.tags {
        check_tags(tags)?;
    }
    draft
        .further_keys()
        .iter()
        .try_for_each(|key| check_key(key))?;
    for (name, value) in draft.properties {
        let reason = if name.is_empty() {
            "a property must have a name"
        } else if names::is_reserved(name) || own::is_own(name.as_bytes()) {
            "the name is reserved"
        } else {
            continue;
        };
        let property = format!("property {name:?}");
        return Err(Error::option(&property, format!("{value:?}"), reason));
    }
    check_headers(draft)
}

fn check_headers(draft: &Draft<'_>) -> Result<()> {
    let mut headers = draft.headers.iter();
    match headers.find(|(name, _)| own::is_own(name.as_bytes())) {
        Some((name, _)) => {
            let reason = "the name of this header is reserved";
            Err(Error::option("headers", format!("{name:?}"), reason))
        }
        None => Ok(()),
    }
}
