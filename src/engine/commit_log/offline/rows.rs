//! Queue entries between one range of the log and the files of the queues.

use super::LaidRun;
use crate::disk::Disk;
use crate::engine::commit_log::queues::queue::ENTRY_LEN;
use crate::engine::commit_log::queues::queue::entry::QueueEntry;
use crate::engine::commit_log::queues::table::{QueueTable, Value};
use crate::engine::directory::names;
use crate::error::Result;
use crate::mapped::queue::file_name;
use crate::num::{index, short};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of entries buffered for larger writes.
const BUFFERED_MAX: usize = 32 << 20;

/// Collects the entries of all queues.
pub struct LaidRows<'a> {
    files: Files<'a>,
    numbers: HashMap<String, u32, foldhash::fast::RandomState>,
    names: Vec<String>,
    queues: QueueTable<LaidQueue>,
    last: u32,
    buffered: usize,
}

/// One queue.
#[derive(Default)]
struct LaidQueue {
    runs: Vec<LaidRun>,
    /// Number of the first buffered entry.
    first: u64,
    bytes: Vec<u8>,
}

impl Value for LaidQueue {
    fn is_there(&self) -> bool {
        !self.runs.is_empty()
    }
}

impl<'a> LaidRows<'a> {
    pub fn new(disk: &'a Arc<dyn Disk>, target: &Path, file_entries: u64) -> LaidRows<'a> {
        LaidRows {
            files: Files::new(disk, target, file_entries),
            numbers: HashMap::default(),
            names: Vec::new(),
            queues: QueueTable::default(),
            last: 0,
            buffered: 0,
        }
    }

    pub fn push(&mut self, topic: &str, queue: u32, offset: u64, entry: QueueEntry) -> Result<()> {
        let last = self.names.get(self.last as usize);
        if last.is_none_or(|last| last != topic) {
            self.last = self.number(topic);
        }
        let row = self.queues.place(self.last, queue);
        match row.runs.last_mut() {
            Some(run) if run.offsets.end == offset => run.offsets.end = offset + 1,
            _ => {
                self.files.store(topic, queue, row.first, &row.bytes)?;
                self.buffered -= row.bytes.len();
                row.bytes.clear();
                row.runs.push(LaidRun {
                    topic: topic.to_owned(),
                    queue,
                    offsets: offset..offset + 1,
                    position: entry.position,
                });
            }
        }
        if row.bytes.is_empty() {
            row.first = offset;
        }
        row.bytes.extend(entry.to_bytes());
        self.buffered += index(ENTRY_LEN);
        match self.buffered > BUFFERED_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn number(&mut self, topic: &str) -> u32 {
        if let Some(number) = self.numbers.get(topic) {
            return *number;
        }
        let number = short(self.names.len());
        self.numbers.insert(topic.to_owned(), number);
        self.names.push(topic.to_owned());
        number
    }

    fn flush(&mut self) -> Result<()> {
        for (number, topic) in (0..).zip(&self.names) {
            for (queue, row) in self.queues.of_mut(number) {
                self.files.store(topic, queue, row.first, &row.bytes)?;
                // Frees the memory, because there are usually many queues with few entries each.
                row.bytes = Vec::new();
            }
        }
        self.buffered = 0;
        Ok(())
    }

    /// Stores the buffered entries.
    pub fn finish(mut self) -> Result<Vec<LaidRun>> {
        self.flush()?;
        let mut runs = Vec::new();
        for number in (0..).take(self.names.len()) {
            for (_, row) in self.queues.of_mut(number) {
                runs.append(&mut row.runs);
            }
        }
        Ok(runs)
    }
}

/// The files of all queues below a directory.
pub struct Files<'a> {
    disk: &'a Arc<dyn Disk>,
    directory: PathBuf,
    file_entries: u64,
    made: HashSet<PathBuf>,
}

impl<'a> Files<'a> {
    pub fn new(disk: &'a Arc<dyn Disk>, target: &Path, file_entries: u64) -> Files<'a> {
        Files {
            disk,
            directory: target.join(names::QUEUES),
            file_entries,
            made: HashSet::new(),
        }
    }

    /// Stores entries from number `first` on, and creates missing files.
    pub fn store(&mut self, topic: &str, queue: u32, first: u64, entries: &[u8]) -> Result<()> {
        let directory = self.directory.join(topic).join(queue.to_string());
        let (mut number, mut rest) = (first, entries);
        while !rest.is_empty() {
            let start = number - number % self.file_entries;
            let room = index((start + self.file_entries - number) * ENTRY_LEN);
            let (part, after) = rest.split_at(room.min(rest.len()));
            let path = directory.join(file_name(start * ENTRY_LEN));
            self.make(&directory, &path)?;
            self.disk
                .write_at(&path, (number - start) * ENTRY_LEN, part)?;
            number = start + self.file_entries;
            rest = after;
        }
        Ok(())
    }

    fn make(&mut self, directory: &Path, path: &Path) -> Result<()> {
        if self.made.contains(path) {
            return Ok(());
        }
        self.disk.create_directory(directory)?;
        match self.disk.create(path, self.file_entries * ENTRY_LEN) {
            // Another range has entries in this file too.
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => {}
            made => made?,
        }
        self.made.insert(path.to_owned());
        Ok(())
    }
}
