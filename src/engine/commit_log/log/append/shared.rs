//! The end of a log that several processes append to.
//!
//! Each process knows the end as of its own last append. A process that takes the append lock first
//! walks the records that others have published since. If the last holder died inside, the process
//! first erases what that holder may have stored above the published end.

use super::{Appender, RESERVE_STEP, Tail};
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::walker::{Step, Walker};
use crate::engine::commit_log::queues::queue::entry::queue_and_offset;
use crate::engine::commit_log::queues::queue::is_directory_name;
use crate::engine::{Topic, Topics};
use crate::error::{Error, Result};
use crate::mapped::queue::list_files;
use crate::mapped::{Extent, MappedFile};
use crate::plant::{Bug, Point, pass, planted};
use crate::record::rocketmq::Record;
use crate::region::Access;
use std::path::Path;
use std::sync::Arc;

impl Tail {
    /// Moves to the published end, past the records of other processes. Returns whether the end had
    /// moved.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the published end is below that of this process, or a damaged record
    /// below it is met: then nothing may be appended. Errors of reading: then the next call
    /// continues where this one began.
    pub fn follow(&mut self, log: &Arc<Log>, topics: &Topics) -> Result<bool> {
        // Another process may have used files that this one prepared for an append that failed.
        self.ahead.clear();
        let end = log.published();
        log.state.check()?;
        if end == self.position {
            return Ok(false);
        }
        if end < self.position {
            let reason = format!(
                "the published end is {end}, but was {} before",
                self.position
            );
            return Err(Error::corrupt(log.path_at(end), end, reason));
        }
        log.join()?;
        let mut walker = Walker::new(log, self.position, end);
        let mut last: Option<Arc<Topic>> = None;
        loop {
            let position = walker.position();
            match walker.step()? {
                Step::Record(at, layout) => {
                    let Some(record) = walker.record(at, layout) else {
                        return Err(damaged(log, position, "the record cannot be read"));
                    };
                    self.take_offset(log, topics, &mut last, (&record, position))?;
                }
                Step::Blank => {}
                Step::Flawed(flaw) => return Err(damaged(log, position, flaw)),
                Step::End => break,
            }
        }
        if walker.position() != end {
            return Err(damaged(
                log,
                end,
                "the published end is not that of a record",
            ));
        }
        self.last_store_ms = self.last_store_ms.max(log.state.stored_ms());
        self.position = end;
        self.enter_last(log)?;
        // Files below the end are read through the parts of a reader.
        log.files.forget_below(end);
        Ok(true)
    }

    /// Raises the next offset of a queue past a record of another process. `last`: the topic of the
    /// record before it.
    ///
    /// Only a record whose offset is not the next one of its queue is checked. The bodies of the
    /// others need not be loaded, and none of them moves an offset by more than one.
    fn take_offset(
        &mut self,
        log: &Log,
        topics: &Topics,
        last: &mut Option<Arc<Topic>>,
        (record, position): (&Record<'_>, u64),
    ) -> Result<()> {
        let name = record.topic();
        let is_last = |last: &Arc<Topic>| last.name.as_bytes() == name;
        if !last.as_ref().is_some_and(is_last) {
            *last = topic_of(topics, name);
        }
        if let Some(topic) = last
            && let Some((queue, offset)) = queue_and_offset(record)
        {
            let next = self.offsets.place(topic.id, queue);
            if offset == *next {
                *next += 1;
                return Ok(());
            }
            // A message after a damaged offset would be in no queue.
            check(log, record, position)?;
            *next = (offset + 1).max(*next);
            return Ok(());
        }
        check(log, record, position)
    }

    /// Continues at `position`, a place that was published, without the records before it.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn resume_at(&mut self, log: &Arc<Log>, position: u64) -> Result<()> {
        self.ahead.clear();
        log.join()?;
        self.position = position;
        self.enter_last(log)?;
        log.files.forget_below(position);
        Ok(())
    }

    /// Continues in the file that the position is in. There is none if another process has sealed
    /// the last file: the next append opens the one that begins there.
    fn enter_last(&mut self, log: &Log) -> Result<()> {
        let current = self.current.as_ref().map(|current| current.file.start());
        match log.files.find(self.position) {
            Some(file) if current == Some(file.start()) => Ok(()),
            Some(file) => self.enter(file),
            None => {
                self.current = None;
                Ok(())
            }
        }
    }

    /// Durably erases what a process that died may have stored above the published end.
    ///
    /// # Errors
    ///
    /// Errors of the disk. A failed sync is final; after any other the next holder must try again.
    pub fn erase_unpublished(&mut self, log: &Arc<Log>) -> Result<()> {
        self.ahead.clear();
        if planted(Bug::KeepUnpublished) {
            return Ok(());
        }
        let (disk, directory) = (log.files.disk(), log.files.directory());
        let end = log.join()?;
        for found in list_files(disk, directory)? {
            let path = log.files.path_of(found.start);
            if found.start > end {
                disk.unlink(&path)?;
                disk.sync_directory(directory)?;
            } else if found.start + found.len > end {
                let extent = Extent::Part(0);
                let (start, len) = (found.start, found.len);
                let access = Access::ReadWrite;
                let file =
                    MappedFile::open(log.files.shared_disk(), path, start, len, access, extent);
                for run in file.data_runs(end - start..len)? {
                    if !planted(Bug::EraseUnnoted) {
                        // If this process dies before the sync, the process that recovers the store
                        // finds zeros, which it must not take for durable.
                        log.state.set_erasing(start + run.end);
                    }
                    disk.erase(file.path(), run.start, run.end - run.start)?;
                }
                pass(Point::Erased);
                disk.sync_file(file.path())?;
                log.state.set_erasing(0);
            }
        }
        Ok(())
    }

    /// Opens the file at `path` if a process created it and then died or failed before it stored
    /// anything there.
    pub(super) fn open_made(
        &self,
        with: &Appender<'_>,
        path: &Path,
        start: u64,
    ) -> Result<Option<Arc<MappedFile>>> {
        let len = with.log.files.file_len();
        match with.disk.stat(path)? {
            None => return Ok(None),
            Some(entry) if entry.len != len => {
                with.disk.unlink(path)?;
                return Ok(None);
            }
            Some(_) => {}
        }
        let (path, extent) = (path.to_path_buf(), Extent::Part(0));
        let file = MappedFile::open(with.disk, path, start, len, Access::ReadWrite, extent);
        file.reserve(RESERVE_STEP.min(len))?;
        with.disk.sync_file(file.path())?;
        with.disk.sync_directory(with.log.files.directory())?;
        Ok(Some(Arc::new(file)))
    }
}

#[cold]
fn check(log: &Log, record: &Record<'_>, position: u64) -> Result<()> {
    let checked = record.check(position).map(drop);
    checked.map_err(|flaw| damaged(log, position, flaw))
}

/// The topic of a record; `None` if no queue can have this name.
fn topic_of(topics: &Topics, name: &[u8]) -> Option<Arc<Topic>> {
    let name = std::str::from_utf8(name).ok()?;
    is_directory_name(name).then(|| topics.get_or_add(name, 1).0)
}

fn damaged(log: &Log, position: u64, reason: impl ToString) -> Error {
    Error::corrupt(log.path_at(position), position, reason.to_string())
}
