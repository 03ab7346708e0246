//! A survey of one log file: the tables that an archive keeps beside its copy.

use super::blocks::{Block, BlockTable, Hole, Run, Table, place};
use super::keys::{encode, key_hash};
use crate::engine::commit_log::search::next_record;
use crate::engine::commit_log::shared::Shared;
use crate::engine::commit_log::state::Mark;
use crate::engine::commit_log::walker::{Step, Walker};
use crate::error::{Error, Op, Result};
use crate::mapped::MappedFile;
use crate::num::{index, short};
use crate::record::properties::Known;
use crate::record::{Flaw, Record};
use std::path::PathBuf;
use std::sync::Arc;

/// A block ends with the record that makes it as long as this.
const BLOCK_LEN: u64 = 1 << 20;

/// A log file that nothing is written to any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Position of its first byte.
    pub start: u64,
    /// Its length.
    pub length: u64,
}

/// What a log file holds.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Its blocks.
    pub table: BlockTable,
    /// Its row of keys.
    pub keys: Vec<u8>,
}

/// The log files that are full, durable and dispatched as a whole, oldest first. The last one,
/// which is written, is never among them, nor one that retention is about to take away.
pub fn sealed(shared: &Shared) -> Vec<SealedFile> {
    let (min, end) = (shared.log.min_position(), sealed_end(shared));
    let files = shared.log.files.all();
    let full = files.iter().take_while(|file| file.end() <= end);
    let full = full.filter(|file| file.start() >= min);
    full.map(|file| SealedFile {
        path: file.path().to_path_buf(),
        start: file.start(),
        length: file.len(),
    })
    .collect()
}

fn sealed_end(shared: &Shared) -> u64 {
    let log = &shared.log;
    let durable = log.state.get(Mark::Durable);
    log.published()
        .min(durable)
        .min(shared.dispatcher.dispatched())
}

/// Walks the sealed file that begins at `start`.
///
/// # Errors
///
/// [`Error::NotFound`] where there is no such file, it is not sealed, or retention has taken it
/// away meanwhile.
pub fn survey(shared: &Shared, start: u64) -> Result<Survey> {
    let log = &shared.log;
    let file = log.files.find(start).filter(|file| file.start() == start);
    let file = file.filter(|file| file.end() <= sealed_end(shared));
    let gone = || Error::NotFound {
        path: log.files.path_of(start),
    };
    let file = file.ok_or_else(gone)?;
    let was_mapped = file.is_mapped();
    let surveyed = walk(shared, &file);
    if !was_mapped {
        file.unmap();
    }
    if start < log.min_position() {
        // Some of its records may have been passed over.
        return Err(gone());
    }
    surveyed
}

fn walk(shared: &Shared, file: &MappedFile) -> Result<Survey> {
    let mut surveyor = Surveyor::new(file);
    let mut walker = Walker::new(&shared.log, file.start(), file.end());
    loop {
        let position = walker.position();
        let flaw = match walker.step()? {
            Step::End => break,
            Step::Blank => continue,
            Step::Flawed(flaw) => flaw,
            Step::Record(at, layout) => {
                let record = walker.record(at, layout).ok_or(Flaw::Empty);
                let checked = record.and_then(|record| record.check(position).map(|_| record));
                match checked {
                    Ok(record) => {
                        surveyor.add(position, &record);
                        continue;
                    }
                    Err(flaw) => flaw,
                }
            }
        };
        let next = next_record(&shared.log, position + 1, file.end())?.unwrap_or(file.end());
        surveyor.skip(position, next, flaw);
        walker.move_to(next);
    }
    let region = file
        .region()
        .map_err(|e| Error::io(Op::Map, file.path(), e))?;
    surveyor.finish(file, |start, len| {
        let bytes = region.run(start, len);
        bytes.map_err(|e| Error::io(Op::Read, file.path(), e))
    })
}

struct Surveyor {
    table: BlockTable,
    block: Block,
    /// Run of each queue in the block.
    runs: Table<u32, Run>,
    queues: Table<u32, Table<u32, u32>>,
    topics: Table<Vec<u8>, u32>,
    keys: Vec<(u32, u32)>,
}

/// Times of a block without records.
const NO_TIMES: (i64, i64) = (i64::MAX, i64::MIN);

impl Surveyor {
    fn new(file: &MappedFile) -> Surveyor {
        Surveyor {
            table: BlockTable {
                start: file.start(),
                length: file.len(),
                ..BlockTable::default()
            },
            block: Block {
                position: file.start(),
                times: NO_TIMES,
                ..Block::default()
            },
            runs: Table::default(),
            queues: Table::default(),
            topics: Table::default(),
            keys: Vec::new(),
        }
    }

    fn add(&mut self, position: u64, record: &Record<'_>) {
        if position - self.block.position >= BLOCK_LEN {
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
        run.bytes += u64::from(record.layout().total_len);
        self.block.records += 1;
        let time = record.store_timestamp();
        let (least, greatest) = self.block.times;
        self.block.times = (least.min(time), greatest.max(time));
        let block = short(self.table.blocks.len());
        for key in Known::read(record.raw_properties()).index_keys() {
            self.keys.push((key_hash(record.topic(), key), block));
        }
    }

    /// Puts what is no record into blocks of its own, which no reader fetches.
    fn skip(&mut self, position: u64, next: u64, flaw: Flaw) {
        self.table.holes.push(Hole {
            position,
            length: next - position,
            reason: flaw.to_string(),
        });
        let mut at = position;
        while at < next {
            self.close(at);
            at = next.min(at + BLOCK_LEN);
        }
        self.close(next);
    }

    /// The number of a queue in the table.
    fn queue(&mut self, topic: &[u8], number: u32) -> u32 {
        let topic = match self.topics.get(topic) {
            Some(known) => *known,
            None => {
                let next = short(self.table.topics.len());
                self.table.topics.push(topic.to_vec());
                self.topics.insert(topic.to_vec(), next);
                next
            }
        };
        let next = short(self.table.queues.len());
        let queues = self.queues.entry(topic).or_default();
        let queue = *queues.entry(number).or_insert(next);
        if queue == next {
            self.table.queues.push((topic, number));
        }
        queue
    }

    /// Ends the block at `position`, where the next one begins; nothing where it has just begun.
    fn close(&mut self, position: u64) {
        if position == self.block.position {
            return;
        }
        let mut runs: Vec<Run> = self.runs.drain().map(|(_, run)| run).collect();
        runs.sort_unstable_by_key(|run| run.queue);
        let first = self.table.runs.len();
        self.table.runs.extend(runs);
        self.block.runs = first..self.table.runs.len();
        self.block.length = short(index(position - self.block.position));
        let next = Block {
            position,
            times: NO_TIMES,
            ..Block::default()
        };
        let closed = std::mem::replace(&mut self.block, next);
        self.table.blocks.push(closed);
    }

    fn finish<'a>(
        mut self,
        file: &MappedFile,
        run: impl Fn(usize, usize) -> Result<&'a [u8]>,
    ) -> Result<Survey> {
        self.close(file.end());
        let mut table = self.table;
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
    /// The table as bytes, to be kept.
    pub fn blocks(&self) -> Vec<u8> {
        self.table.encode()
    }
}

/// A survey holds no map and no handle.
const _: () = {
    const fn is_free<T: Send + 'static>() {}
    is_free::<Arc<Survey>>()
};
