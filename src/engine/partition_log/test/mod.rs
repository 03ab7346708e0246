//! Tests of the partition log, over logs that Kafka wrote and over made ones.

mod adopted;
mod archive;
mod behind;
mod compaction;
mod damage;
mod emptied;
mod extremes;
mod flush_messages;
mod follow;
mod golden;
mod half_read;
mod lacking;
mod lengths;
mod lent;
mod linger;
mod listening;
mod live;
mod meanwhile;
mod producers;
mod promised;
mod recovery;
mod removal;
mod replaced;
mod retention;
mod roll;
mod shared;
mod stats;
mod stored;
mod taken;
mod time;
mod torn;
mod transactions;
mod write;

use super::PartitionLog;
use crate::engine::{Check, Engine, Filter, Point, Rows, Topic};
use crate::error::Result;
use crate::machine::Machine;
use crate::options::{Isolation, Mode, Options};
use crate::record::Message;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A log directory with one partition, `t-0`, that a test writes.
pub(crate) struct Made {
    pub(crate) root: TempDir,
}

/// A batch of format 2 in the making.
#[derive(Clone, Default)]
pub(crate) struct Spec<'a> {
    pub(crate) base: u64,
    /// Timestamps of the records.
    pub(crate) times: &'a [i64],
    pub(crate) producer: Option<i64>,
    /// The producer's epoch, and the sequence of the first record.
    pub(crate) sequence: Option<(i16, i32)>,
    /// Attributes besides the producer's.
    pub(crate) attributes: u16,
    /// Key of the records, otherwise a null key.
    pub(crate) key: Option<&'a [u8]>,
    /// Records that compaction has removed after the last.
    pub(crate) removed: u32,
    /// Zeros after each value. The batch is packed with gzip if there are any.
    pub(crate) zeros: usize,
}

const GZIP: u16 = 0x1;
const TRANSACTIONAL: u16 = 0x10;
const CONTROL: u16 = 0x20;

fn zigzag(number: i64) -> Vec<u8> {
    let mut bits = ((number << 1) ^ (number >> 63)) as u64;
    let mut bytes = Vec::new();
    while bits > 0x7F {
        bytes.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    bytes.push(bits as u8);
    bytes
}

impl Spec<'_> {
    /// The bytes of the batch. The value of each record is its offset as text.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let first = self.times.first().copied().unwrap_or(-1);
        let mut records = Vec::new();
        for (delta, time) in self.times.iter().enumerate() {
            let mut own = vec![0];
            own.extend(zigzag(time - first));
            own.extend(zigzag(delta as i64));
            match self.key {
                Some(key) => own.extend([zigzag(key.len() as i64), key.to_vec()].concat()),
                None => own.extend(zigzag(-1)),
            }
            let mut value = (self.base + delta as u64).to_string().into_bytes();
            value.resize(value.len() + self.zeros, 0);
            own.extend(zigzag(value.len() as i64));
            own.extend(value);
            own.push(0);
            records.extend(zigzag(own.len() as i64));
            records.extend(own);
        }
        let mut attributes = self.attributes;
        if self.zeros > 0 {
            let mut packer = GzEncoder::new(Vec::new(), Compression::default());
            packer.write_all(&records).unwrap();
            records = packer.finish().unwrap();
            attributes |= GZIP;
        }
        let last = (self.times.len() as u32 + self.removed).saturating_sub(1);
        let max = self.times.iter().copied().max().unwrap_or(-1);
        let mut bytes = self.base.to_be_bytes().to_vec();
        bytes.extend((49 + records.len() as i32).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 2, 0, 0, 0, 0]);
        bytes.extend(attributes.to_be_bytes());
        bytes.extend(last.to_be_bytes());
        bytes.extend(first.to_be_bytes());
        bytes.extend(max.to_be_bytes());
        bytes.extend(self.producer.unwrap_or(-1).to_be_bytes());
        let (epoch, sequence) = self.sequence.unwrap_or((-1, -1));
        bytes.extend(epoch.to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend((self.times.len() as u32).to_be_bytes());
        bytes.extend(records);
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes
    }
}

/// A batch of `times.len()` records from offset `base` on.
fn batch(base: u64, times: &[i64]) -> Vec<u8> {
    let spec = Spec {
        base,
        times,
        ..Spec::default()
    };
    spec.bytes()
}

impl Made {
    pub(crate) fn new() -> Made {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("t-0")).unwrap();
        Made { root }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join("t-0").join(name)
    }

    /// Writes a segment.
    pub(crate) fn segment(&self, base: u64, batches: &[Vec<u8>]) {
        fs::write(self.log(base), batches.concat()).unwrap();
    }

    fn log(&self, base: u64) -> PathBuf {
        self.file(&format!("{base:020}.log"))
    }

    /// Appends to a segment.
    fn append(&self, base: u64, batch: &[u8]) {
        let file = fs::OpenOptions::new().append(true).open(self.log(base));
        file.unwrap().write_all(batch).unwrap();
    }

    fn open(&self) -> PartitionLog {
        open(self.root.path(), Isolation::ReadUncommitted).unwrap()
    }
}

fn open(root: &Path, isolation: Isolation) -> Result<PartitionLog> {
    let options = Options {
        mode: Mode::Read,
        isolation: Some(isolation),
        ..Options::default()
    };
    PartitionLog::open(&Machine::real(), root, &options)
}

fn topic(engine: &PartitionLog, name: &str) -> Arc<Topic> {
    engine.topics().get(name).unwrap()
}

/// All messages of queue 0 of a topic, read `step` at a time.
fn messages(engine: &PartitionLog, name: &str, step: usize) -> Vec<Message> {
    messages_of(engine, (name, 0), step)
}

/// All messages of a queue, read `step` at a time.
fn messages_of(engine: &PartitionLog, (name, queue): (&str, u32), step: usize) -> Vec<Message> {
    let topic = topic(engine, name);
    let range = engine.bounds(&topic, queue).unwrap().unwrap();
    let all = Filter::default();
    let mut cursor = engine
        .cursor(&topic, queue, range.clone(), &all, Check::Full)
        .unwrap();
    let mut found: Vec<Message> = Vec::new();
    loop {
        let mut rows = Rows::default();
        cursor.next(step, &mut rows).unwrap();
        if rows.rows.is_empty() {
            assert_eq!(cursor.offset(), range.end);
            return found;
        }
        found.extend(rows.rows.iter().filter_map(|row| rows.message(row)));
        let last = found.last().unwrap().record().queue_offset() as u64;
        // The cursor may also have passed over records that are not messages.
        assert!(cursor.offset() > last);
    }
}

fn offsets(engine: &PartitionLog) -> Vec<i64> {
    let mut all = Vec::new();
    // Few messages are copied, many are read where they lie.
    for step in [100, 1000] {
        let found = messages(engine, "t", step);
        for message in &found {
            let offset = message.record().queue_offset();
            assert_eq!(*message.body().unwrap(), *offset.to_string().as_bytes());
        }
        let offsets = found.iter().map(|it| it.record().queue_offset());
        all.push(offsets.collect::<Vec<i64>>());
    }
    assert_eq!(all.first(), all.last());
    all.remove(0)
}

fn bounds(engine: &PartitionLog) -> std::ops::Range<u64> {
    engine.bounds(&topic(engine, "t"), 0).unwrap().unwrap()
}

fn at(engine: &PartitionLog, time: i64) -> u64 {
    engine
        .offset_at(&topic(engine, "t"), 0, Point::Time(time))
        .unwrap()
}
