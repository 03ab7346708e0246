//! Staging: the rows of one task, checked and encoded as records in a separate file.
//!
//! A stage resembles a part of a log: consecutive records, each with checksums. The position of a
//! record is its first byte in the file; its queue is -1 if the row names none. So the writer reads
//! a stage like a log, and refuses no row that was accepted here.
//!
//! A stage is not synced here. Its rows are reported as safe only when the log is durable, and its
//! checksums show whether it survived a power loss. A commit of many parts needs durable stages,
//! but a task does not know the number of parts; the writer syncs the stages of such a commit
//! first.

use super::manifest::PART_LEN;
use super::place::{QueryPlace, StagePlace, unique};
use crate::arrow::sink::SinkRows;
use crate::clock::{Clock, RealClock};
use crate::disk::Disk;
use crate::error::{Error, Op, Result};
use crate::record::{Batch, Contents, Draft};
use arrow_array::RecordBatch;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum length of a value in bytes: the default limit of a store.
pub const VALUE_LEN_MAX: usize = 4 << 20;
/// Records are collected up to this many bytes before they are written, and are later read in the
/// same pieces. So what is read, checked and encoded at a time stays in the processor's cache.
const WRITE_LEN: usize = 1 << 20;
/// The queue in the record of a row that names none.
const NO_QUEUE: u32 = u32::MAX;

/// The rows of a finished task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Name of the file in the directory of the query.
    pub name: String,
    /// Fingerprint of its rows.
    pub contents: Contents,
    /// Slices of the file that end between two rows, as they were written: 1 MiB plus at most
    /// one row.
    pub slices: Vec<Range<u64>>,
}

/// Collects the rows of a task. If it is not finished, it leaves no file.
#[derive(Debug)]
pub struct Stager {
    disk: Arc<dyn Disk>,
    stages: StagePlace,
    place: QueryPlace,
    name: String,
    topic: Option<String>,
    /// The topic that was checked last.
    checked: String,
    batch: Batch,
    /// Length of the file.
    len: u64,
    contents: Contents,
    slices: Vec<Range<u64>>,
    write_len: usize,
    is_there: bool,
}

impl Stager {
    /// A stage of a query, for the store at `root`, which need not exist yet. `topic`: the topic of
    /// all rows.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTopic`], or [`Error::InvalidOption`] for an invalid query.
    pub fn new(
        disk: Arc<dyn Disk>,
        root: &Path,
        query: &str,
        topic: Option<&str>,
    ) -> Result<Stager> {
        let stages = StagePlace::of(&*disk, root)?;
        topic.map_or(Ok(()), |topic| stages.check_topic(topic))?;
        let place = stages.make(&*disk, query)?;
        Ok(Stager {
            disk,
            stages,
            place,
            name: format!("stage-{}", unique()),
            topic: topic.map(str::to_owned),
            checked: String::new(),
            batch: Batch::of_stage(VALUE_LEN_MAX),
            len: 0,
            contents: Contents::default(),
            slices: Vec::new(),
            write_len: WRITE_LEN,
            is_there: false,
        })
    }

    /// Writes as soon as there are `write_len` bytes.
    #[cfg(test)]
    pub fn cut_at(mut self, write_len: usize) -> Stager {
        self.write_len = write_len;
        self
    }

    fn temporary(&self) -> PathBuf {
        self.place.path(&format!("{}.tmp", self.name))
    }

    /// Adds the rows of a batch.
    ///
    /// # Errors
    ///
    /// [`Error::Row`], counted over all batches, for a row that cannot be a message. After an error
    /// the stager must be dropped.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = SinkRows::new(batch)?;
        let now = RealClock.now_ms();
        let (mut keys, mut headers) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            keys.clear();
            headers.clear();
            let pushed = match &self.topic {
                // The topic given for all rows takes precedence.
                Some(_) => Ok(None),
                None => rows.topic(row),
            };
            let pushed = pushed.and_then(|topic| {
                let draft = rows.draft(row, &mut keys, &mut headers)?;
                self.push(topic, &draft, now)
            });
            let number = usize::try_from(self.contents.rows).unwrap_or(usize::MAX);
            self.contents
                .add(pushed.map_err(|error| error.in_row(number))?);
            if self.batch.encoded_len() >= self.write_len {
                self.write_out()?;
            }
        }
        Ok(())
    }

    /// Encodes a row and returns its contents.
    fn push(&mut self, topic: Option<&str>, draft: &Draft<'_>, now: i64) -> Result<Contents> {
        let topic = match (&self.topic, topic) {
            (Some(topic), _) => topic.as_str(),
            (None, Some(topic)) => {
                if topic != self.checked {
                    self.stages.check_topic(topic)?;
                    topic.clone_into(&mut self.checked);
                }
                topic
            }
            (None, None) => {
                let reason = "give the option topic, or a column topic without nulls";
                return Err(Error::option("topic", "null", reason));
            }
        };
        let queue = draft.queue.unwrap_or(NO_QUEUE);
        let begin = self.batch.encoded_len();
        self.batch.push(topic, queue, draft, now)?;
        Ok(self.batch.contents_from(begin, draft))
    }

    /// Writes the collected rows.
    fn write_out(&mut self) -> Result<()> {
        let records = self.batch.seal_all(self.len);
        let position = self.len + records.len() as u64;
        let path = self.temporary();
        let write = |batch: &Batch| self.disk.write_at(&path, self.len, batch.bytes());
        let written = match write(&self.batch) {
            // The directory was empty and old, and has been swept.
            Err(error) if error.is_not_found() && !self.is_there => {
                let again = self.place.make_again(&*self.disk);
                let again = again.map_err(|error| error.during(Op::Write, &path));
                again.and_then(|()| write(&self.batch))
            }
            written => written,
        };
        self.is_there = true;
        written?;
        // A stage that fits one part is usually appended and unlinked before the system writes it
        // to the disk. A longer one will be synced.
        if position > PART_LEN {
            let start = if self.len > PART_LEN { self.len } else { 0 };
            self.disk.write_back(&path, start, position - start);
        }
        self.slices.push(self.len..position);
        self.len = position;
        self.batch.clear();
        Ok(())
    }

    /// Finishes the stage. `None` if no row was written; then there is no file.
    ///
    /// Neither the file nor its name is durable on return: a power loss may leave no stage or a
    /// damaged one.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: there is no stage.
    pub fn finish(mut self) -> Result<Option<Stage>> {
        if !self.batch.is_empty() {
            self.write_out()?;
        }
        if self.contents.rows == 0 {
            return Ok(None);
        }
        let (from, to) = (self.temporary(), self.place.path(&self.name));
        self.disk.rename(&from, &to)?;
        self.is_there = false;
        Ok(Some(Stage {
            name: std::mem::take(&mut self.name),
            contents: self.contents,
            slices: std::mem::take(&mut self.slices),
        }))
    }
}

impl Drop for Stager {
    fn drop(&mut self) {
        if self.is_there {
            let _ = self.disk.unlink(&self.temporary());
        }
    }
}
