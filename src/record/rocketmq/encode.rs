//! Encodes records in two steps: what does not depend on the place in the log is done before the
//! append lock is taken ([`Batch::push`]), the rest under it ([`Batch::seal`]).

use super::check::{check_properties, largest_property};
use super::checksum;
use super::layout::{
    AT_BORN_HOST, AT_BORN_TIMESTAMP, AT_POSITION, AT_QUEUE_ID, AT_QUEUE_OFFSET, AT_SYS_FLAG,
    CRC_LEN, FIXED_LEN_V4, HOST_V4, MAGIC_V1, MAGIC_V2, Record, sys_flag,
};
use super::properties;
use super::sink::Sink;
use super::unique_id;
use crate::error::Result;
use crate::num::{low_u8, low_u16, short};
use crate::record::common::check::{TOPIC_LEN_MAX, check_born, check_topic_name, too_large};
use crate::record::common::names::UNIQ_KEY;
use crate::record::common::room::room;
use crate::record::common::{Copied, Draft, RecordStyle};

/// Maximum length of a record's properties in bytes, including the 20 of the checksum.
pub const PROPERTIES_LEN_MAX: usize = 32_767;
/// Maximum bytes of a record in addition to the maximum body.
pub const RECORD_OVERHEAD_MAX: usize = 64 * 1024;
/// Maximum length of a topic in a record of version 2.
const LONG_TOPIC_LEN_MAX: usize = 32_767;
/// For bodies of at least this size, the body's part of the record checksum is computed outside the
/// append lock.
const LARGE_BODY: usize = 16 * 1024;

/// The property of the record checksum before the checksum is known.
const CRC_BLANK: &[u8; CRC_LEN] = b"__CRC32#\x010000000000\x02";

/// One encoded record of a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    start: usize,
    /// Length of the record in bytes.
    pub len: u32,
    /// Queue that the record goes to.
    pub queue: u32,
    fixed_len: u32,
    tail_crc: Option<u32>,
}

/// Encoded records of one topic, one after another, ready to be sealed and copied into a log.
///
/// A cleared batch keeps its memory, so a sender that reuses it does not allocate.
#[derive(Debug)]
pub struct Batch {
    /// Records up to `end`; after it, remains of earlier ones.
    bytes: Vec<u8>,
    end: usize,
    rows: Vec<Encoded>,
    pub(super) style: RecordStyle,
    /// Whether a topic longer than [`TOPIC_LEN_MAX`] makes a record of version 2.
    long_topics: bool,
    /// The sender's clock when the last row was pushed.
    clock_ms: i64,
}

impl Batch {
    /// An empty batch for records of this style.
    #[inline]
    pub fn new(style: RecordStyle) -> Batch {
        Batch {
            bytes: Vec::new(),
            end: 0,
            rows: Vec::new(),
            style,
            long_topics: false,
            clock_ms: 0,
        }
    }

    /// Allows longer topics than a log of this form does. Their records have version 2.
    pub fn with_long_topics(self) -> Batch {
        Batch {
            long_topics: true,
            ..self
        }
    }

    /// Removes the records, keeps the memory, and takes another style.
    #[inline]
    pub fn renew(&mut self, style: RecordStyle) {
        self.clear();
        self.style = style;
        self.long_topics = false;
    }

    /// What its records share.
    #[inline]
    pub fn style(&self) -> &RecordStyle {
        &self.style
    }

    /// Removes the records but keeps the memory.
    pub fn clear(&mut self) {
        self.end = 0;
        self.rows.clear();
    }

    /// The records in the order of [`Batch::push`].
    pub fn rows(&self) -> &[Encoded] {
        &self.rows
    }

    /// The sender's clock when the last record was encoded, in ms.
    #[inline]
    pub fn clock_ms(&self) -> i64 {
        self.clock_ms
    }

    /// Total bytes of all records.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        self.end
    }

    /// The records, one after another.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.end).unwrap_or_default()
    }

    /// Bytes of memory that the batch holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Encodes one message for `queue` of `topic`. `born_timestamp` applies if the draft has none.
    /// After an error the batch is unchanged.
    ///
    /// # Errors
    ///
    /// [`InvalidTopic`](crate::Error::InvalidTopic), [`TooLarge`](crate::Error::TooLarge) and
    /// [`InvalidOption`](crate::Error::InvalidOption), from the checks of the format in its order:
    /// length of the topic, body, properties, record.
    pub fn push(
        &mut self,
        topic: &str,
        queue: u32,
        draft: &Draft<'_>,
        born_timestamp: i64,
    ) -> Result<()> {
        let row = self.encode(topic, queue, draft, born_timestamp)?;
        self.clock_ms = born_timestamp;
        self.rows.push(row);
        Ok(())
    }

    /// As [`Batch::push`], and gives the message a unique id.
    pub fn push_with_id(
        &mut self,
        topic: &str,
        queue: u32,
        draft: &Draft<'_>,
        born_timestamp: i64,
    ) -> Result<()> {
        let id = unique_id::next(&self.style.host, born_timestamp);
        let mut system = vec![(UNIQ_KEY, id.as_str())];
        system.extend_from_slice(draft.system_properties);
        let draft = Draft {
            system_properties: &system,
            ..*draft
        };
        self.push(topic, queue, &draft, born_timestamp)
    }

    /// The magic of a record with this topic.
    #[inline]
    fn magic_for(&self, topic: &str) -> Result<u32> {
        if topic.len() <= TOPIC_LEN_MAX {
            return Ok(MAGIC_V1);
        }
        if self.long_topics && topic.len() <= LONG_TOPIC_LEN_MAX {
            return Ok(MAGIC_V2);
        }
        // Its length would be read as a negative number.
        check_topic_name(topic).map(|()| MAGIC_V1)
    }

    #[inline]
    fn encode(
        &mut self,
        topic: &str,
        queue: u32,
        draft: &Draft<'_>,
        born_timestamp: i64,
    ) -> Result<Encoded> {
        let magic = self.magic_for(topic)?;
        let style = &self.style;
        check_born(draft.born_timestamp)?;
        let body = draft.body;
        if body.len() > style.max_message_size {
            return Err(too_large("body", body.len(), style.max_message_size));
        }
        let crc_len = if style.checksum { CRC_LEN } else { 0 };
        let properties_len = check_properties(draft)? + crc_len;
        let with_room = properties_len + draft.properties_room;
        if with_room > PROPERTIES_LEN_MAX {
            let largest = largest_property(draft);
            return Err(too_large(&largest, with_room, PROPERTIES_LEN_MAX));
        }
        let fixed_len = FIXED_LEN_V4 - 2 * HOST_V4 + 2 * style.host.as_bytes().len();
        let topic_len = len_width(magic) + topic.len();
        let len = fixed_len + body.len() + topic_len + 2 + properties_len;
        let limit = style.max_message_size + RECORD_OVERHEAD_MAX;
        if len > limit {
            return Err(too_large("record", len, limit));
        }
        let start = self.end;
        self.end += len;
        let record = room(&mut self.bytes, start, len);
        let mut to = Sink(&mut *record);
        to.header((len, magic), queue, draft, &style.host, born_timestamp);
        to.put(body);
        to.topic(topic, magic);
        to.put(&low_u16(short(properties_len)).to_be_bytes());
        to.properties(draft);
        if style.checksum {
            to.put(CRC_BLANK);
        }
        let covered = record.get(fixed_len..len - crc_len).unwrap_or_default();
        let tail_crc =
            (style.checksum && body.len() >= LARGE_BODY).then(|| crc32fast::hash(covered));
        Ok(Encoded {
            start,
            len: short(len),
            queue,
            fixed_len: short(fixed_len),
            tail_crc,
        })
    }

    /// Adds a record that was encoded elsewhere, for `queue`. Returns false and adds nothing if
    /// records of this style have another form: it must then be pushed.
    ///
    /// The record must be checked and have a whole-record checksum.
    pub fn push_encoded(&mut self, encoded: &Record<'_>, queue: u32, clock_ms: i64) -> bool {
        let style = self.style;
        let v6 = encoded.sys_flag() & (sys_flag::BORN_V6 | sys_flag::STORE_V6) != 0;
        if v6 || style.host.is_v6() || !style.checksum || encoded.magic() != MAGIC_V1 {
            return false;
        }
        let bytes = encoded.bytes();
        let (start, len) = (self.end, bytes.len());
        self.end += len;
        let record = room(&mut self.bytes, start, len);
        record.copy_from_slice(bytes);
        let host = style.host.as_bytes();
        let mut set = |at: usize, value: &[u8]| {
            if let Some(to) = record.get_mut(at..at + value.len()) {
                to.copy_from_slice(value);
            }
        };
        set(AT_QUEUE_ID, &queue.to_be_bytes());
        set(AT_BORN_HOST, host);
        set(AT_BORN_HOST + HOST_V4 + 8, host);
        let covered = record.get(FIXED_LEN_V4..len - CRC_LEN).unwrap_or_default();
        let is_large = encoded.stored_body().len() >= LARGE_BODY;
        self.clock_ms = clock_ms;
        self.rows.push(Encoded {
            start,
            len: short(len),
            queue,
            fixed_len: short(FIXED_LEN_V4),
            tail_crc: is_large.then(|| crc32fast::hash(covered)),
        });
        true
    }

    /// Adds a copy of a record: its body, flag, born time and host, with the changes in `to`. If
    /// the born host has another length than the store's host, it is replaced by that. The copy
    /// gets its own checksum.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`]. The batch is then unchanged.
    pub fn push_copy(&mut self, of: &Record<'_>, to: &Copied<'_>) -> Result<()> {
        check_topic_name(to.topic)?;
        let style = self.style;
        let (body, host) = (of.stored_body(), style.host.as_bytes());
        let properties = properties::copied(of.raw_properties(), to);
        let crc_len = if style.checksum { CRC_LEN } else { 0 };
        let properties_len = properties.len() + crc_len;
        if properties_len > PROPERTIES_LEN_MAX {
            return Err(too_large("properties", properties_len, PROPERTIES_LEN_MAX));
        }
        let fixed_len = FIXED_LEN_V4 - 2 * HOST_V4 + 2 * host.len();
        let len = fixed_len + body.len() + 1 + to.topic.len() + 2 + properties_len;
        let limit = style.max_message_size.max(body.len()) + RECORD_OVERHEAD_MAX;
        if len > limit {
            return Err(too_large("record", len, limit));
        }
        let draft = Draft {
            body,
            flag: of.flag(),
            born_timestamp: Some(of.born_timestamp()),
            reconsume_times: to.reconsume_times,
            ..Draft::default()
        };
        let start = self.end;
        self.end += len;
        let record = room(&mut self.bytes, start, len);
        let mut sink = Sink(&mut *record);
        sink.header((len, MAGIC_V1), to.queue, &draft, &style.host, 0);
        sink.put(body);
        sink.topic(to.topic, MAGIC_V1);
        sink.put(&low_u16(short(properties_len)).to_be_bytes());
        sink.put(&properties);
        if style.checksum {
            sink.put(CRC_BLANK);
        }
        keep_origin(record, of, host.len());
        self.clock_ms = to.clock_ms;
        self.rows.push(Encoded {
            start,
            len: short(len),
            queue: to.queue,
            fixed_len: short(fixed_len),
            tail_crc: None,
        });
        Ok(())
    }

    /// Completes all records as if they were stored one after another from `position` on, each at
    /// offset 0 of its queue, at the time when the last one was encoded. Returns their bytes.
    pub fn seal_all(&mut self, position: u64) -> &[u8] {
        let (mut position, clock_ms) = (position, self.clock_ms);
        for index in 0..self.rows.len() {
            if let Some(row) = self.rows.get(index).copied() {
                self.seal(row, 0, position, clock_ms);
                position += u64::from(row.len);
            }
        }
        self.bytes()
    }

    /// Marks all records as rolled back, so that they belong to no queue.
    pub fn roll_back(&mut self) {
        for row in &self.rows {
            if let Some(flags) = self.bytes.get_mut(row.start + AT_SYS_FLAG + 3) {
                *flags |= low_u8(sys_flag::ROLLBACK as usize);
            }
        }
    }

    /// Completes a record for its place and returns its bytes. May be called again for another
    /// place.
    #[inline]
    pub fn seal(&mut self, row: Encoded, queue_offset: u64, position: u64, store_ts: i64) -> &[u8] {
        let end = row.start + row.len as usize;
        let Some(record) = self.bytes.get_mut(row.start..end) else {
            return &[];
        };
        let mut set = |at: usize, value: u64| {
            if let Some(to) = record.get_mut(at..at + 8) {
                to.copy_from_slice(&value.to_be_bytes());
            }
        };
        set(AT_QUEUE_OFFSET, queue_offset);
        set(AT_POSITION, position);
        let host_len = (row.fixed_len as usize - 72) / 2;
        set(AT_BORN_HOST + host_len, store_ts as u64);
        if self.style.checksum {
            checksum::seal(record, row.fixed_len as usize, row.tail_crc);
        }
        record
    }
}

/// Bytes of the length of a topic.
#[inline]
fn len_width(magic: u32) -> usize {
    match magic {
        MAGIC_V2 => 2,
        _ => 1,
    }
}

/// Gives a copy the compression flags of the original, and its born host if the length fits.
fn keep_origin(record: &mut [u8], of: &Record<'_>, host_len: usize) {
    let kept = of.sys_flag() & (sys_flag::COMPRESSED | sys_flag::COMPRESSION);
    if let Some(flags) = record.get_mut(AT_SYS_FLAG..AT_BORN_TIMESTAMP) {
        let both = flags.iter_mut().zip(kept.to_be_bytes());
        both.for_each(|(flags, kept)| *flags |= kept);
    }
    let born = of.born_host_bytes();
    if born.len() == host_len
        && let Some(at) = record.get_mut(AT_BORN_HOST..AT_BORN_HOST + host_len)
    {
        at.copy_from_slice(born);
    }
}
