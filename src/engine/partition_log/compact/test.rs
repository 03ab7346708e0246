//! Tests of compaction: passes over made segments, compared with a naive model.

use super::pass::Pass;
use super::rules::CompactRules;
use super::source::{Complete, Source};
use super::stop::Stop;
use crate::cleanup::Compaction;
use crate::disk::RealDisk;
use crate::engine::Keyless;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::write::ends::{End, Ends};
use crate::engine::partition_log::write::rules::Rules;
use crate::error::Result;
use crate::options::Options;
use crate::record::kafka::entry::Headers;
use crate::record::kafka::{Entry, Header, Rebuilt, TransactionMarker};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use tempfile::TempDir;

mod given_up;
mod law;
mod passes;

type Bytes = Option<Vec<u8>>;

/// A record as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    offset: u64,
    timestamp: i64,
    key: Bytes,
    value: Bytes,
}

/// A batch in the making.
#[derive(Clone, Debug, Default)]
struct Made {
    base: u64,
    /// Key and value of each record; one control record if `marker` is set.
    rows: Vec<(Bytes, Bytes)>,
    codec: u16,
    /// The producer, if there is one.
    producer: Option<i64>,
    is_transactional: bool,
    marker: Option<TransactionMarker>,
}

const TRANSACTIONAL: u16 = 0x10;
const CONTROL: u16 = 0x20;

fn timestamp(offset: u64) -> i64 {
    1_000 + offset.cast_signed()
}

impl Made {
    fn end(&self) -> u64 {
        self.base + self.len()
    }

    fn len(&self) -> u64 {
        match self.marker {
            None => self.rows.len() as u64,
            Some(_) => 1,
        }
    }

    fn rows(&self) -> Vec<Row> {
        let rows = (self.base..).zip(&self.rows);
        rows.map(|(offset, (key, value))| Row {
            offset,
            timestamp: timestamp(offset),
            key: key.clone(),
            value: value.clone(),
        })
        .collect()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut attributes = self.codec;
        if self.is_transactional || self.marker.is_some() {
            attributes |= TRANSACTIONAL;
        }
        if self.marker.is_some() {
            attributes |= CONTROL;
        }
        let mut head = self.base.to_be_bytes().to_vec();
        head.extend(49_i32.to_be_bytes());
        head.extend([0, 0, 0, 7, 2, 0, 0, 0, 0]);
        head.extend(attributes.to_be_bytes());
        head.extend((self.len() as u32 - 1).to_be_bytes());
        head.extend([0xFF; 16]);
        head.extend(self.producer.unwrap_or(-1).to_be_bytes());
        head.extend([0, 3, 0, 0, 0, 0]);
        head.extend([0; 4]);
        let header = Header::parse(&head).unwrap();
        let mut rebuilt = Rebuilt::new(&head, &header, None).unwrap();
        let mut push = |offset: u64, key: Option<&[u8]>, value: Option<&[u8]>| {
            rebuilt.push(&Entry {
                offset,
                timestamp: timestamp(offset),
                key,
                value,
                headers: Headers::default(),
            });
        };
        match self.marker {
            Some(TransactionMarker::Abort) => push(self.base, Some(&[0, 0, 0, 0]), Some(&[0; 6])),
            Some(TransactionMarker::Commit) => push(self.base, Some(&[0, 0, 0, 1]), Some(&[0; 6])),
            None => {
                for row in self.rows() {
                    push(row.offset, row.key.as_deref(), row.value.as_deref());
                }
            }
        }
        let mut bytes = Vec::new();
        rebuilt.finish(&mut bytes).unwrap();
        bytes
    }
}

/// A partition whose segments a test writes.
struct Log {
    folder: TempDir,
    ends: Ends,
    rules: Rules,
    compact: CompactRules,
    now_ms: i64,
}

const DAY_MS: i64 = 24 * 3600 * 1000;

impl Log {
    /// A log with these segments, each given by its batches; the last is not complete.
    fn new(segments: &[Vec<Made>], compaction: &Compaction) -> Log {
        let folder = tempfile::tempdir().unwrap();
        let mut complete = Vec::new();
        let mut end = End::default();
        for made in segments {
            let bytes: Vec<u8> = made.iter().flat_map(Made::bytes).collect();
            let base = made.first().map_or(end.offset, |first| first.base);
            let path = folder.path().join(format!("{base:020}.log"));
            fs::write(&path, &bytes).unwrap();
            end = End {
                base,
                len: bytes.len() as u64,
                offset: made.last().map_or(base, Made::end),
            };
            complete.push(Segment {
                base,
                path,
                len: end.len,
            });
        }
        complete.pop();
        let options = Options {
            segment_bytes: Some(4096),
            index_interval_bytes: Some(200),
            ..Options::default()
        };
        Log {
            ends: Ends::new(folder.path().to_owned(), false, complete, (0, end)),
            folder,
            rules: Rules::new(&options),
            compact: CompactRules::new(compaction),
            now_ms: 10_000,
        }
    }

    fn complete(&self) -> Complete {
        let (segments, end) = self.ends.complete();
        Complete { segments, end }
    }

    /// Passes until everything that is complete is clean. Returns how many there were.
    fn compact(&self, mut first_dirty: u64) -> Result<u32> {
        let bound = self.complete().end;
        let mut passes = 0;
        loop {
            let complete = self.complete();
            let mut pass = Pass {
                disk: &RealDisk,
                rules: &self.rules,
                compact: &self.compact,
                ends: &self.ends,
                complete: &complete,
                ahead: &complete,
                keyless: Keyless::Drop,
                now_ms: self.now_ms,
                pace: &mut |_| Ok(()),
                is_swapping: false,
            };
            let (end, _) = match pass.run(first_dirty) {
                Err(Stop::Failed(error)) => return Err(error),
                done => done.unwrap(),
            };
            passes += 1;
            assert!(end > first_dirty || end >= bound, "no progress at {end}");
            first_dirty = end;
            if end >= bound {
                return Ok(passes);
            }
        }
    }

    /// Bases of the segments, as the names of the files state them.
    fn bases(&self) -> Vec<u64> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        let logs = names.filter(|name| name.ends_with(".log"));
        let mut bases: Vec<u64> = logs.map(|name| name[..20].parse().unwrap()).collect();
        bases.sort_unstable();
        bases
    }

    /// All records that are no control records, and the headers of all batches.
    fn read(&self) -> (Vec<Row>, Vec<Header>) {
        let (segments, _) = self.ends.seen();
        let (mut rows, mut headers) = (Vec::new(), Vec::new());
        for segment in segments.iter() {
            let mut source = Source::open(&RealDisk, segment, u64::MAX, 0).unwrap();
            while let Some(found) = source.next(&RealDisk).unwrap() {
                headers.push(found.header);
                let bytes = source.bytes(&found).unwrap();
                let mut opened = source.open_batch(&found, bytes).unwrap();
                while let Some(entry) = opened.next().unwrap() {
                    if !found.header.is_control() {
                        rows.push(Row {
                            offset: entry.offset,
                            timestamp: entry.timestamp,
                            key: entry.key.map(<[u8]>::to_vec),
                            value: entry.value.map(<[u8]>::to_vec),
                        });
                    }
                }
            }
        }
        (rows, headers)
    }
}

fn row(key: &str, value: &str) -> (Bytes, Bytes) {
    (Some(key.into()), Some(value.into()))
}

fn tombstone(key: &str) -> (Bytes, Bytes) {
    (Some(key.into()), None)
}
