//! A survey of one log file: the tables that an archive keeps beside its copy.

use super::blocks::{BlockTable, Run, Table, place};
use super::builder::BlockBuilder;
use super::keys::{encode, key_hash};
use crate::error::{Error, Result};
use crate::mapped::MappedFile;
use crate::num::short;
use crate::record::{Flaw, Row};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A log file that will never be written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Position of its first byte.
    pub start: u64,
    /// Its length.
    pub length: u64,
}

/// The tables of a log file.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Its table of blocks.
    pub table: BlockTable,
    /// Its key file.
    pub keys: Vec<u8>,
}

/// Builds the tables of a file from its records and holes, given in order of position.
pub struct Surveyor {
    built: BlockBuilder,
    /// Run of each queue in the current block.
    runs: Table<u32, Run>,
    queues: Table<u32, Table<u32, u32>>,
    topics: Table<Vec<u8>, u32>,
    keys: Vec<(u32, u32)>,
}

impl Surveyor {
    /// Begins a survey at the first byte of the file.
    pub fn new(file: &MappedFile) -> Surveyor {
        Surveyor {
            built: BlockBuilder::new(BlockTable {
                start: file.start(),
                length: file.len(),
                ..BlockTable::default()
            }),
            runs: Table::default(),
            queues: Table::default(),
            topics: Table::default(),
            keys: Vec::new(),
        }
    }

    /// Adds the record at `position`.
    pub fn add(&mut self, position: u64, record: &Row<'_>) {
        if self.built.is_full(position) {
            self.close(position);
        }
        let (Ok(number), Ok(offset)) = (
            u32::try_from(record.queue_id()),
            u64::try_from(record.queue_offset()),
        ) else {
            return;
        };
        if !record.is_queued() || offset == i64::MAX.cast_unsigned() {
            return;
        }
        let queue = self.queue(record.topic(), number);
        let run = self.runs.entry(queue).or_insert(Run {
            queue,
            first: offset,
            ..Run::default()
        });
        run.first = run.first.min(offset);
        run.end = run.end.max(offset + 1);
        run.records += 1;
        run.bytes += u64::from(record.layout().total_len());
        self.built.block.records += 1;
        let time = record.store_timestamp();
        self.built.add_times((time, time));
        let block = short(self.built.table.blocks.len());
        for key in record.known().index_keys() {
            self.keys.push((key_hash(record.topic(), key), block));
        }
    }

    /// Puts a hole into separate blocks, which no reader fetches.
    pub fn skip(&mut self, hole: &Range<u64>, flaw: &Flaw) {
        let runs = self.take_runs();
        self.built.skip(hole, flaw, runs);
    }

    /// The number of a queue in the table.
    fn queue(&mut self, topic: &[u8], number: u32) -> u32 {
        let topic = match self.topics.get(topic) {
            Some(known) => *known,
            None => {
                let next = short(self.built.table.topics.len());
                self.built.table.topics.push(topic.to_vec());
                self.topics.insert(topic.to_vec(), next);
                next
            }
        };
        let next = short(self.built.table.queues.len());
        let queues = self.queues.entry(topic).or_default();
        let queue = *queues.entry(number).or_insert(next);
        if queue == next {
            self.built.table.queues.push((topic, number));
        }
        queue
    }

    /// Ends the current block at `position`, where the next one begins.
    fn close(&mut self, position: u64) {
        let runs = self.take_runs();
        self.built.close(position, runs);
    }

    /// The runs of the current block.
    fn take_runs(&mut self) -> Vec<Run> {
        let mut runs: Vec<Run> = self.runs.drain().map(|(_, run)| run).collect();
        runs.sort_unstable_by_key(|run| run.queue);
        runs
    }

    /// Ends the last block and computes the checksum of each. `run` returns the bytes for a place
    /// in the file and a length.
    pub fn finish<'a>(
        mut self,
        file: &MappedFile,
        run: impl Fn(usize, usize) -> Result<&'a [u8]>,
    ) -> Result<Survey> {
        self.close(file.end());
        let mut table = self.built.table;
        for number in 0..table.blocks.len() {
            let Some(block) = table.blocks.get(number) else {
                break;
            };
            let start = place(&table, block.position).unwrap_or_default();
            let bytes = run(start, block.length as usize)?;
            if bytes.len() != block.length as usize {
                let reason = "the log file ends before its length";
                return Err(Error::corrupt(file.path(), block.position, reason));
            }
            let checksum = crc32fast::hash(bytes);
            if let Some(block) = table.blocks.get_mut(number) {
                block.checksum = checksum;
            }
        }
        let (keys, slots) = encode(self.keys);
        table.slots = slots;
        Ok(Survey { table, keys })
    }
}

impl Survey {
    /// The encoded table of blocks.
    pub fn blocks(&self) -> Vec<u8> {
        self.table.encode()
    }
}

/// A survey holds no mapping and no file handle.
const _: () = {
    const fn is_free<T: Send + 'static>() {}
    is_free::<Arc<Survey>>()
};
