//! The staged rows that a commit names.

use super::manifest::{Manifest, Slice};
use super::place::QueryPlace;
use super::rows::{self, PartRows};
use super::stop::Stop;
use super::writer::Writer;
use crate::engine::directory::page::Word;
use crate::engine::service::shutdown::Shutdown;
use crate::error::{At, Error, Op, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::Row;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{channel, sync_channel};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};

/// Number of threads that check a commit.
const CHECKERS: usize = 2;
/// Number of parts in memory: one is appended while the next is encoded.
const PARTS: usize = 2;

/// The rows of a commit.
pub struct Staged<'a> {
    /// The store to append to.
    pub writer: &'a Writer,
    /// The files of the query.
    pub place: &'a QueryPlace,
    pub manifest: &'a Manifest,
    /// Ends the work early.
    pub shutdown: &'a Shutdown,
}

impl Staged<'_> {
    /// Checks that all rows can be read and appended, and makes them and the manifest at `path`
    /// durable, but not their names.
    ///
    /// # Errors
    ///
    /// [`Stop::Refuse`] if a row cannot be appended (it is damaged, too long, or its topic is
    /// invalid), or if a sync failed.
    pub fn check_all(&self, path: &Path) -> Result<(), Stop> {
        let slices: Vec<_> = self.manifest.parts.iter().flatten().collect();
        let check_rows = |slices: &[&Slice]| {
            let (mut bytes, mut checked) = (Vec::new(), Vec::new());
            let mut all = slices.iter();
            all.try_for_each(|it| {
                if self.shutdown.has_begun() {
                    return Err(Stop::Later(Error::Closed { path: None }));
                }
                let check = |record: &Row<'_>| {
                    let checked = rows::check(&*self.writer.engine, record, &mut checked);
                    checked.map_err(Stop::refuse)
                };
                self.each_record(**it, &mut bytes, check)?;
                // A driver that waits for the commit sees the progress.
                self.writer.words.notify(Word::Taken);
                Ok(())
            })
        };
        if !self.writer.may_help() {
            self.sync(path)?;
            return check_rows(&slices);
        }
        thread::scope(|scope| {
            let joined = |it: ScopedJoinHandle<'_, Result<(), Stop>>| {
                it.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            let syncing = spawn(scope, || self.sync(path))?;
            let shares = slices.chunks(slices.len().div_ceil(CHECKERS).max(1));
            let checkers: Vec<_> = shares
                .map(|share| spawn(scope, move || check_rows(share)))
                .collect();
            // The result of the sync comes first: a failed sync must not be repeated, whatever else
            // is wrong.
            joined(syncing)?;
            checkers.into_iter().try_for_each(|it| joined(it?))
        })
    }

    /// Makes the manifest and the stages durable, but not their names.
    fn sync(&self, manifest: &Path) -> Result<(), Stop> {
        if planted(Bug::StagesUnsynced) {
            return Ok(());
        }
        let disk = self.writer.disk();
        disk.sync_file(manifest).map_err(Stop::of_file)?;
        for stage in &self.manifest.stages {
            let path = self.place.path(stage);
            disk.sync_file(&path).map_err(Stop::of_file)?;
            // A driver that waits for the commit sees the progress.
            self.writer.words.notify(Word::Taken);
        }
        Ok(())
    }

    /// Calls `take` with the encoded parts, in order, until it returns false. Encodes the next part
    /// meanwhile.
    pub fn each_part(
        &self,
        parts: Range<usize>,
        mut take: impl FnMut(usize, &mut PartRows<'_>) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        if !self.writer.may_help() || parts.len() < 2 {
            let (mut rows, mut bytes) = (PartRows::new(self.writer), Vec::new());
            for part in parts {
                self.encode(part, &mut rows, &mut bytes)?;
                if !take(part, &mut rows)? {
                    break;
                }
            }
            return Ok(());
        }
        thread::scope(|scope| {
            let (empty, to_fill) = channel();
            let (full, to_take) = sync_channel(PARTS);
            for _ in 0..PARTS {
                let _ = empty.send(PartRows::new(self.writer));
            }
            let numbers = parts.clone();
            spawn(scope, move || {
                let mut bytes = Vec::new();
                for part in numbers {
                    let Ok(mut rows) = to_fill.recv() else { break };
                    let encoded = self.encode(part, &mut rows, &mut bytes);
                    if full.send(encoded.map(|()| rows)).is_err() {
                        break;
                    }
                }
            })?;
            // If the other thread panics, so does the scope.
            for (part, rows) in parts.zip(to_take) {
                let mut rows = rows?;
                if !take(part, &mut rows)? {
                    break;
                }
                let _ = empty.send(rows);
            }
            Ok(())
        })
    }

    /// Encodes the rows of a part. `bytes`: a buffer.
    fn encode(
        &self,
        part: usize,
        rows: &mut PartRows<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        rows.begin(self.writer.machine.clock.now_ms());
        let mut slices = self.manifest.parts.get(part).into_iter().flatten();
        slices.try_for_each(|it| self.each_record(*it, bytes, |record| rows.add(record)))
    }

    /// Reads a slice of a stage and calls `take` with each record in it. `bytes`: a buffer.
    fn each_record(
        &self,
        slice: Slice,
        bytes: &mut Vec<u8>,
        mut take: impl FnMut(&Row<'_>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let name = self.manifest.stages.get(slice.stage);
        let path = self.place.path(name.map_or("", |name| name));
        bytes.resize(index(slice.end - slice.begin), 0);
        let have = self.writer.disk().read_at(&path, slice.begin, bytes);
        let have = have.map_err(Stop::of_file)?;
        let flawed = |at: usize, reason: String| {
            Stop::refuse(Error::corrupt(&path, slice.begin + at as u64, reason))
        };
        if have < bytes.len() {
            return Err(flawed(have, "the stage ends here".to_owned()));
        }
        let limit = self.writer.record_len_max;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let record = Row::parse(rest).map_err(|flaw| flawed(at, flaw.to_string()))?;
            let checked = record.check(slice.begin + at as u64);
            checked.map_err(|flaw| flawed(at, flaw.to_string()))?;
            if !record.has_checksum() {
                // Every staged record has one, so it is damaged.
                return Err(flawed(at, "the record has no checksum".to_owned()));
            }
            let len = record.bytes().len();
            if len as u64 > limit {
                return Err(Stop::refuse(Error::TooLarge {
                    what: "record (which must fit a commit log file)".to_owned(),
                    size: len as u64,
                    limit,
                }));
            }
            take(&record)?;
            at += len;
        }
        Ok(())
    }
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Stop> {
    let thread = Builder::new().name("forebay-intake".to_owned());
    let spawned = thread.spawn_scoped(scope, work);
    Ok(spawned.at(Op::Start, "a thread")?)
}
