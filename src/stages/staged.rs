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
use std::iter;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};

/// Number of threads that check a commit.
const CHECKERS: usize = 2;
/// Number of parts in memory: one is appended while the next is encoded.
const PARTS: usize = 2;

/// Number of slices that are checked in one turn while other commits wait.
const CHECK_TURN: usize = 32;

/// How much of a commit is checked.
#[derive(Debug, Default)]
pub struct Checked {
    /// Number of files that are durable: the manifest, then the stages.
    files: usize,
    /// Number of slices whose rows can be appended.
    slices: usize,
}

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
    /// durable, but not their names. Continues after what is already `checked`. Returns false if
    /// something is left because `others` wait for a turn.
    ///
    /// # Errors
    ///
    /// [`Stop::Refuse`] if a row cannot be appended (it is damaged, too long, or its topic is
    /// invalid), or if a sync failed.
    pub fn check(
        &self,
        path: &Path,
        checked: &mut Checked,
        others: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, Stop> {
        let slices: Vec<_> = self.manifest.parts.iter().flatten().copied().collect();
        let files = 1 + self.manifest.stages.len();
        let is_whole = |it: &Checked| it.files == files && it.slices == slices.len();
        if is_whole(checked) {
            return Ok(true);
        }
        let next = AtomicUsize::new(checked.slices);
        let least = checked.slices + CHECK_TURN;
        let is_over = || next.load(Ordering::Relaxed) >= least && others();
        let check_rows = || self.check_rows(&slices, &next, &is_over);
        if self.writer.may_help() {
            thread::scope(|scope| {
                let joined = |it: ScopedJoinHandle<'_, Result<(), Stop>>| {
                    it.join().unwrap_or_else(|panic| resume_unwind(panic))
                };
                let syncing = spawn(scope, || self.sync(path, &mut checked.files, others))?;
                let checkers: Vec<_> = (0..CHECKERS).map(|_| spawn(scope, check_rows)).collect();
                // The result of the sync comes first: a failed sync must not be repeated, whatever
                // else is wrong.
                joined(syncing)?;
                checkers.into_iter().try_for_each(|it| joined(it?))
            })?;
        } else {
            self.sync(path, &mut checked.files, others)?;
            check_rows()?;
        }
        checked.slices = next.into_inner().min(slices.len());
        Ok(is_whole(checked))
    }

    /// Checks the rows of the slices from number `next` on, in parallel with other threads, until
    /// `is_over`.
    fn check_rows(
        &self,
        slices: &[Slice],
        next: &AtomicUsize,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Stop> {
        let (mut bytes, mut topic) = (Vec::new(), Vec::new());
        while !is_over() {
            if self.shutdown.has_begun() {
                return Err(Stop::Later(Error::Closed { path: None }));
            }
            let Some(slice) = slices.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let check = |record: &Row<'_>| {
                let checked = rows::check(&*self.writer.engine, record, &mut topic);
                checked.map_err(Stop::refuse)
            };
            self.each_record(*slice, &mut bytes, check)?;
            // A driver that waits for the commit sees the progress.
            self.writer.words.notify(Word::Taken);
        }
        Ok(())
    }

    /// Makes the manifest and the stages durable, but not their names. `done` of these files are
    /// durable. Makes at least one durable, then stops if `others` wait.
    fn sync(
        &self,
        manifest: &Path,
        done: &mut usize,
        others: &dyn Fn() -> bool,
    ) -> Result<(), Stop> {
        let stages = self.manifest.stages.iter().map(|it| self.place.path(it));
        let files = iter::once(manifest.to_owned()).chain(stages);
        for file in files.skip(*done) {
            if !planted(Bug::StagesUnsynced) {
                let synced = self.writer.disk().sync_file(&file);
                synced.map_err(Stop::of_file)?;
            }
            *done += 1;
            // A driver that waits for the commit sees the progress.
            self.writer.words.notify(Word::Taken);
            if others() {
                break;
            }
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
                // Every staged record has a checksum, so this one is damaged.
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
