//! The table of the blocks of one log file.
//!
//! All numbers are big-endian. `T`, `Q`, `B`, `R`, `H` and `S` are the numbers of topics, queues,
//! blocks, runs, holes and key slots.
//!
//! ```text
//! at   width  field
//! 0    8      "FBBLOCKS"
//! 8    u32    version: 1
//! 12   u32    CRC-32 of everything that follows
//! 16   u64    position of the first byte of the log file
//! 24   u64    length of the log file
//! 32   6*u32  T, Q, B, R, H, S
//! 56          T topics:  u16 length, name
//!             Q queues:  u32 topic, u32 queue id
//!             B blocks:  u32 length, u32 CRC-32, u32 runs, u32 records, i64 least store time,
//!                        i64 greatest store time
//!             R runs:    u32 queue, u32 records, u64 bytes, u64 first offset, u64 offset after
//!                        the last
//!             H holes:   u64 position, u64 length, u16 length, reason
//!             S slots:   u32 entries, u32 CRC-32 of them                             (see keys)
//! ```
//!
//! A *run* is what one block holds of one queue. Runs are in the order of their blocks.

use crate::damage::{Damage, DamageKind};
use crate::error::{Error, Result};
use crate::num::{be_u32, be_u64, index, short};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

const MAGIC: &[u8; 8] = b"FBBLOCKS";
const VERSION: u32 = 1;
const CHECKED_FROM: usize = 16;

/// The requested offsets, by the bytes of the topic and by queue.
pub type Wanted = Table<Vec<u8>, Table<u32, Vec<Range<u64>>>>;

/// A hash table that is read for every record.
pub type Table<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// What the blocks of a log file hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Position of the file's first byte.
    pub start: u64,
    /// Length of the file.
    pub length: u64,
    /// Names of topics, as in the records.
    pub topics: Vec<Vec<u8>>,
    /// Topic (an index into the topics) and number of each queue.
    pub queues: Vec<(u32, u32)>,
    /// The blocks, in order of position.
    pub blocks: Vec<Block>,
    /// What each block holds of each queue.
    pub runs: Vec<Run>,
    /// Bytes that are not records.
    pub holes: Vec<SkippedRange>,
    /// The slots of the keys: a power of two, or none.
    pub slots: Vec<KeySlot>,
}

/// A part of the key file: all hashes with the same first bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySlot {
    /// Number of entries.
    pub entries: u32,
    /// CRC-32 of their bytes.
    pub checksum: u32,
}

/// Adjacent bytes of the log file, between two record boundaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Position of the first byte.
    pub position: u64,
    /// Length in bytes.
    pub length: u32,
    /// CRC-32 of the bytes.
    pub checksum: u32,
    /// Number of records that belong to a queue.
    pub records: u32,
    /// Least and greatest store time of these. If there are none, the first is greater than the
    /// second.
    pub times: (i64, i64),
    /// The table's runs that belong to this block.
    pub runs: Range<usize>,
}

/// What one block holds of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Index into the queues.
    pub queue: u32,
    /// Number of records.
    pub records: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The least offset.
    pub first: u64,
    /// After the greatest offset.
    pub end: u64,
}

/// Bytes that are not a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedRange {
    /// Position of the first byte.
    pub position: u64,
    /// Length in bytes.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
}

/// What one file holds of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRange {
    /// Topic. Bytes that are not UTF-8 are replaced.
    pub topic: String,
    /// Number of the queue.
    pub queue: u32,
    /// From the first offset to after the last.
    pub offsets: Range<u64>,
    /// Number of records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl BlockTable {
    /// What the file holds of each queue, sorted by topic and number.
    pub fn queue_ranges(&self) -> Vec<QueueRange> {
        let mut found: BTreeMap<(&[u8], u32), QueueRange> = BTreeMap::new();
        for run in &self.runs {
            let Some((topic, queue)) = self.name(run.queue) else {
                continue;
            };
            let entry = found.entry((topic, queue)).or_insert_with(|| QueueRange {
                topic: String::from_utf8_lossy(topic).into_owned(),
                queue,
                offsets: run.first..run.end,
                records: 0,
                bytes: 0,
            });
            entry.offsets.start = entry.offsets.start.min(run.first);
            entry.offsets.end = entry.offsets.end.max(run.end);
            entry.records += u64::from(run.records);
            entry.bytes = entry.bytes.saturating_add(run.bytes);
        }
        found.into_values().collect()
    }

    /// For each block, the bytes of the wanted queues' records if it holds wanted offsets, else 0.
    pub fn weights(&self, wanted: &Wanted) -> Vec<u64> {
        let by_queue = self.by_queue(wanted);
        let weight = |block: &Block| {
            let runs = self.runs.get(block.runs.clone()).unwrap_or_default();
            let asked = runs.iter().filter(|run| meets(&by_queue, run));
            asked.fold(0_u64, |sum, run| sum.saturating_add(run.bytes))
        };
        self.blocks.iter().map(weight).collect()
    }

    /// Topic, number and offset after the last of each queue that has records in the blocks before
    /// `block`.
    pub fn ends_before(&self, block: usize) -> Vec<(String, u32, u64)> {
        let runs = match self.blocks.get(block) {
            Some(block) => self.runs.get(..block.runs.start).unwrap_or_default(),
            None => &self.runs,
        };
        let mut ends = vec![None; self.queues.len()];
        for run in runs {
            if let Some(end) = ends.get_mut(run.queue as usize) {
                *end = (*end).max(Some(run.end));
            }
        }
        let named = |(queue, end): (usize, Option<u64>)| {
            let (topic, queue) = self.name(short(queue))?;
            Some((String::from_utf8_lossy(topic).into_owned(), queue, end?))
        };
        ends.into_iter().enumerate().filter_map(named).collect()
    }

    /// The holes as damage of the file at `path`.
    pub fn damage(&self, path: &Path) -> Vec<Damage> {
        let damage = |hole: &SkippedRange| {
            let bytes = hole.position..hole.position.saturating_add(hole.length);
            Damage::new(DamageKind::Log, path, bytes, &hole.reason)
        };
        self.holes.iter().map(damage).collect()
    }

    fn name(&self, queue: u32) -> Option<(&[u8], u32)> {
        let (topic, number) = self.queues.get(queue as usize)?;
        Some((self.topics.get(*topic as usize)?, *number))
    }

    fn by_queue<'a>(&self, wanted: &'a Wanted) -> Vec<&'a [Range<u64>]> {
        let ranges = |queue| {
            let (topic, number) = self.name(queue)?;
            Some(wanted.get(topic)?.get(&number)?.as_slice())
        };
        (0..short(self.queues.len()))
            .map(|queue| ranges(queue).unwrap_or_default())
            .collect()
    }

    /// Encodes the table.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.blocks.len() * 32 + self.runs.len() * 32);
        out.extend_from_slice(MAGIC);
        let numbers = [VERSION, 0];
        numbers.iter().for_each(|number| put32(&mut out, *number));
        out.extend_from_slice(&self.start.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        let counts = [
            self.topics.len(),
            self.queues.len(),
            self.blocks.len(),
            self.runs.len(),
            self.holes.len(),
            self.slots.len(),
        ];
        counts
            .iter()
            .for_each(|count| put32(&mut out, short(*count)));
        for topic in &self.topics {
            put_text(&mut out, topic);
        }
        for (topic, queue) in &self.queues {
            put32(&mut out, *topic);
            put32(&mut out, *queue);
        }
        for block in &self.blocks {
            put32(&mut out, block.length);
            put32(&mut out, block.checksum);
            put32(&mut out, short(block.runs.len()));
            put32(&mut out, block.records);
            out.extend_from_slice(&block.times.0.to_be_bytes());
            out.extend_from_slice(&block.times.1.to_be_bytes());
        }
        for run in &self.runs {
            put32(&mut out, run.queue);
            put32(&mut out, run.records);
            out.extend_from_slice(&run.bytes.to_be_bytes());
            out.extend_from_slice(&run.first.to_be_bytes());
            out.extend_from_slice(&run.end.to_be_bytes());
        }
        for hole in &self.holes {
            out.extend_from_slice(&hole.position.to_be_bytes());
            out.extend_from_slice(&hole.length.to_be_bytes());
            put_text(&mut out, hole.reason.as_bytes());
        }
        for slot in &self.slots {
            put32(&mut out, slot.entries);
            put32(&mut out, slot.checksum);
        }
        let checksum = crc32fast::hash(out.get(CHECKED_FROM..).unwrap_or_default());
        if let Some(place) = out.get_mut(CHECKED_FROM - 4..CHECKED_FROM) {
            place.copy_from_slice(&checksum.to_be_bytes());
        }
        out
    }

    /// Decodes a table from `bytes`, which were read from `path`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a later version. [`Error::Corrupt`] with the byte of the table
    /// for any other invalid bytes.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<BlockTable> {
        let wrong = |at: usize, reason: &str| Error::corrupt(path, at as u64, reason);
        if bytes.get(..8) != Some(MAGIC) || bytes.len() < CHECKED_FROM {
            return Err(wrong(0, "not a table of blocks"));
        }
        let version = be_u32(bytes, 8);
        if version != VERSION {
            let what = format!("version {version} of the table {}", path.display());
            return Err(Error::Unsupported { what });
        }
        let checked = bytes.get(CHECKED_FROM..).unwrap_or_default();
        if be_u32(bytes, CHECKED_FROM - 4) != crc32fast::hash(checked) {
            return Err(wrong(CHECKED_FROM, "the checksum of the table is wrong"));
        }
        let mut parts = Parts {
            bytes,
            at: CHECKED_FROM,
        };
        let table = parts.table();
        table.ok_or_else(|| wrong(parts.at, "the fields of the table contradict each other"))
    }
}

impl BlockTable {
    /// Numbers of the blocks that hold wanted offsets.
    pub fn select(&self, wanted: &Wanted) -> Vec<usize> {
        let by_queue = self.by_queue(wanted);
        let asked = |block: &Block| {
            let runs = self.runs.get(block.runs.clone()).unwrap_or_default();
            runs.iter().any(|run| meets(&by_queue, run))
        };
        let numbered = self.blocks.iter().enumerate();
        numbered
            .filter_map(|(number, block)| asked(block).then_some(number))
            .collect()
    }
}

fn meets(by_queue: &[&[Range<u64>]], run: &Run) -> bool {
    let ranges = by_queue.get(run.queue as usize).copied();
    let ranges = ranges.unwrap_or_default().iter();
    ranges
        .clone()
        .any(|r| r.start < run.end && run.first < r.end)
}

fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = text.get(..usize::from(u16::MAX)).unwrap_or(text);
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(text);
}

/// Decodes a table. `None` if it ends too early or contradicts itself.
struct Parts<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parts<'_> {
    fn table(&mut self) -> Option<BlockTable> {
        let (start, length) = (self.u64()?, self.u64()?);
        start.checked_add(length)?;
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = self.u32()?;
        }
        let [topics, queues, blocks, runs, holes, slots] = counts;
        let topics = self.many(topics, 2, |parts| parts.text())?;
        let queues = self.many(queues, 8, |parts| {
            let (topic, queue) = (parts.u32()?, parts.u32()?);
            ((topic as usize) < topics.len()).then_some((topic, queue))
        })?;
        let mut position = start;
        let mut run = 0;
        let blocks = self.many(blocks, 32, |parts| {
            let (length, checksum) = (parts.u32()?, parts.u32()?);
            let first = run;
            run = first + parts.u32()? as usize;
            let block = Block {
                position,
                length,
                checksum,
                records: parts.u32()?,
                times: (parts.u64()?.cast_signed(), parts.u64()?.cast_signed()),
                runs: first..run,
            };
            position = position.checked_add(u64::from(length))?;
            Some(block)
        })?;
        if blocks.is_empty() || position != start + length || run != runs as usize {
            return None;
        }
        let runs = self.many(runs, 32, |parts| {
            let run = Run {
                queue: parts.u32()?,
                records: parts.u32()?,
                bytes: parts.u64()?,
                first: parts.u64()?,
                end: parts.u64()?,
            };
            let sound = (run.queue as usize) < queues.len()
                && run.first < run.end
                && run.end <= i64::MAX.cast_unsigned();
            sound.then_some(run)
        })?;
        let holes = self.many(holes, 18, Parts::hole)?;
        let slots = self.many(slots, 8, Parts::slot)?;
        let whole = self.at == self.bytes.len();
        let even = slots.is_empty() || slots.len().is_power_of_two();
        (whole && even).then_some(BlockTable {
            start,
            length,
            topics,
            queues,
            blocks,
            runs,
            holes,
            slots,
        })
    }

    fn hole(&mut self) -> Option<SkippedRange> {
        Some(SkippedRange {
            position: self.u64()?,
            length: self.u64()?,
            reason: String::from_utf8_lossy(&self.text()?).into_owned(),
        })
    }

    fn slot(&mut self) -> Option<KeySlot> {
        Some(KeySlot {
            entries: self.u32()?,
            checksum: self.u32()?,
        })
    }

    /// Decodes `count` items of at least `least` bytes each. Returns `None` before allocating if
    /// the bytes cannot hold that many.
    fn many<T>(
        &mut self,
        count: u32,
        least: usize,
        mut one: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let left = self.bytes.len() - self.at;
        if count as usize > left / least {
            return None;
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn u32(&mut self) -> Option<u32> {
        let end = self.at + 4;
        (end <= self.bytes.len()).then(|| {
            let number = be_u32(self.bytes, self.at);
            self.at = end;
            number
        })
    }

    fn u64(&mut self) -> Option<u64> {
        let end = self.at + 8;
        (end <= self.bytes.len()).then(|| {
            let number = be_u64(self.bytes, self.at);
            self.at = end;
            number
        })
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let head = self.bytes.get(self.at..)?.first_chunk::<2>()?;
        let start = self.at + 2;
        let end = start + usize::from(u16::from_be_bytes(*head));
        let text = self.bytes.get(start..end)?;
        self.at = end;
        Some(text.to_vec())
    }
}

/// Byte of the file at a position of the log; `None` outside the file.
pub fn place(table: &BlockTable, position: u64) -> Option<usize> {
    let at = position.checked_sub(table.start)?;
    (at < table.length).then(|| index(at))
}
