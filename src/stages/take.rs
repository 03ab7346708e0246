//! Taking a commit up: its parts are appended, one after the other.

use super::manifest::{Conflict, Manifest, Pending, Refusal, sync, sync_up};
use super::marker::{self, Marker};
use super::rows::PartRows;
use super::staged::Staged;
use super::stop::Stop;
use super::writer::Writer;
use crate::disk::Disk;
use crate::engine::directory::page::Word;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::{Atomicity, Topic};
use crate::error::{Error, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::{Batch, Contents};
use std::collections::{HashMap, HashSet};

/// Parts that are appended in one turn, while others wait for theirs. The first part of a turn is
/// encoded while none is appended.
const TURN: usize = 8;

/// How many parts of a commit are in the log, by the id of its manifest, as long as nobody else
/// appends any.
pub type Known = HashMap<String, usize>;

/// What one turn of a commit leaves to the next.
pub struct Turns<'a> {
    /// Commits whose staged rows need no check any more, by their ids.
    pub checked: &'a mut HashSet<String>,
    /// Of commits that have had a turn.
    pub known: &'a mut Known,
    /// Whether another commit waits for its turn.
    pub others: &'a dyn Fn() -> bool,
    /// Ends a turn early.
    pub shutdown: &'a Shutdown,
}

/// How far a turn has brought a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is appended, or was withdrawn.
    Last,
    /// It has parts for another turn.
    More,
}

/// Appends a commit, or as much of what is not in the log yet as one turn takes. Takes its files
/// away when all is appended and durable.
pub fn append(writer: &Writer, pending: &mut Pending, mut turns: Turns<'_>) -> Result<Turn, Stop> {
    let (disk, engine) = (writer.disk(), &*writer.engine);
    let Some(manifest) = pending.manifest.clone() else {
        engine.make_readable(u64::MAX)?;
        return unreadable(writer, pending);
    };
    let mut done = match turns.known.get(&manifest.id) {
        Some(done) => *done,
        None => {
            // What is looked up next is complete.
            engine.make_readable(u64::MAX)?;
            parts_done(writer, &manifest)?
        }
    };
    if done < manifest.parts.len() {
        match append_rest(writer, pending, &manifest, &mut turns, &mut done) {
            Ok(true) if done < manifest.parts.len() => {
                turns.known.insert(manifest.id, done);
                return Ok(Turn::More);
            }
            Ok(true) => {}
            Ok(false) => return Ok(Turn::Last),
            Err(stop) => return Err(stopped(disk, pending, &manifest, done, stop)),
        }
    } else {
        // What a process had appended before it died is in the log, perhaps not on the disk.
        engine.flush_to(engine.readable_position())?;
        // It may have been withdrawn, and another commit of the batch have its name.
        if !pending.is_begun() && !pending.begin(disk)? {
            return Ok(Turn::Last);
        }
    }
    // Readers in other processes see what is dispatched. A driver that found the manifest gone, and
    // no marker yet, would take the commit for lost.
    engine.make_readable(engine.durable_position())?;
    pending.finish(disk)?;
    Ok(Turn::Last)
}

/// What becomes of a manifest that cannot be read. A commit of several parts is durable before its
/// first part is in the log, so one that a loss of power has damaged never happened, unless its
/// only part is in the log.
fn unreadable(writer: &Writer, pending: &mut Pending) -> Result<Turn, Stop> {
    let engine = &*writer.engine;
    let (query, batch) = (&pending.query, pending.batch());
    let of_batch = marker::last_of_batch(engine, query, batch)?;
    let Some(found) = of_batch.filter(|it| it.part > 0) else {
        let flaw = pending.flaw();
        return Err(Stop::refuse(Error::corrupt(pending.path(), 0, flaw)));
    };
    if !found.is_whole() {
        let last = marker::last(writer, query)?;
        return Err(cut(&found, &last.map_or(found.clone(), |(last, _)| last)));
    }
    // Whoever waits for it asks the log which rows the batch has.
    engine.flush_to(engine.readable_position())?;
    if pending.is_begun() || pending.begin(writer.disk())? {
        pending.finish(writer.disk())?;
    }
    Ok(Turn::Last)
}

/// How many parts of a commit are in the log, or count as if they were.
fn parts_done(writer: &Writer, manifest: &Manifest) -> Result<usize, Stop> {
    let (query, batch) = (&manifest.query, manifest.batch);
    let last = marker::last(writer, query)?.map(|(marker, _)| marker);
    if manifest.resolution.is_some() {
        let is_own = |it: &Marker| it.commit == manifest.id && it.batch == batch;
        let is_cut = |it: &Marker| it.batch == batch && it.part > 0 && !it.is_whole();
        return match last {
            Some(last) if is_own(&last) => Ok(1),
            Some(last) if is_cut(&last) => Ok(0),
            _ => Err(Stop::refuse(format!(
                "there is nothing to resolve: no part of batch {batch} alone is the last of this \
                 query in the log"
            ))),
        };
    }
    let Some(last) = last else {
        return Ok(0);
    };
    if last.batch < batch {
        return Ok(0);
    }
    if last.batch == batch && (last.commit == manifest.id || last.part == 0) {
        return Ok(index(last.part));
    }
    // Spark runs the last batch again, and no other one. The rows of an earlier one that are in the
    // log all the same need not be appended again.
    let all = manifest.parts.len();
    let found = match last.batch == batch {
        true => Some(last.clone()),
        false if planted(Bug::TrustNumbers) => return Ok(all),
        false => {
            let of_batch = marker::last_of_batch(&*writer.engine, query, batch)?;
            of_batch.filter(|it| it.contents.is_some())
        }
    };
    match found {
        Some(found) if found.part > 0 && !found.is_whole() => Err(cut(&found, &last)),
        Some(found) if found.part > 0 && found.is_of(manifest) => Ok(all),
        _ => match manifest.conflict {
            Conflict::Append => Ok(0),
            Conflict::Skip => Ok(all),
            Conflict::Fail => Err(Stop::refuse(conflict(&last, manifest))),
        },
    }
}

/// What to do about a batch of which a part is in the log, and the rest cannot follow.
const RESOLVE: &str = "\"forebay commits show\" tells what is there, and \"forebay commits \
                       resolve\" whether it counts as appended or is appended again";

/// Why a batch cannot be a retry.
fn conflict(last: &Marker, manifest: &Manifest) -> String {
    let batch = manifest.batch;
    let rows = |contents: Option<Contents>| {
        contents.map_or("rows".to_owned(), |it| format!("{} rows", it.rows))
    };
    let found = match last.batch == batch {
        true => format!(
            "the log holds batch {batch} of this query with other rows ({} there, {} here)",
            rows(last.contents),
            rows(manifest.contents)
        ),
        false => format!("the log holds batch {} of this query already", last.batch),
    };
    format!(
        "{found}, so this is no retry: the checkpoint was rolled back, copied or forked, or the \
         query gives other rows each time. Start with a new checkpoint directory, which makes a \
         new query, or set the option batchConflict: append appends the rows, skip passes over them"
    )
}

/// Appends the parts of one turn from `done` on, which counts those that are in the log. False
/// where the commit was withdrawn meanwhile.
fn append_rest(
    writer: &Writer,
    pending: &mut Pending,
    manifest: &Manifest,
    turns: &mut Turns<'_>,
    done: &mut usize,
) -> Result<bool, Stop> {
    let (disk, directory) = (writer.disk(), pending.directory.clone());
    let staged = Staged {
        writer,
        directory: &directory,
        manifest,
        shutdown: turns.shutdown,
    };
    // A single part is all there or not at all. With one of several parts in the log, and the rest
    // damaged or gone with the power, no retry could complete the batch.
    let goes_first = manifest.parts.len() > 1 && *done == 0;
    if goes_first && !turns.checked.contains(&manifest.id) {
        staged.look_through(&pending.path())?;
        turns.checked.insert(manifest.id.clone());
    }
    if !pending.is_begun() && !pending.begin(disk)? {
        return Ok(false);
    }
    // The rename to `taken` must be durable before any row is in the log: a power loss could bring
    // the old name back, and the commit could be withdrawn.
    if *done == 0 {
        let synced = match goes_first {
            true if planted(Bug::BeginUnsynced) => Ok(()),
            true => sync_up(disk, &writer.home.root, &directory),
            false => sync(disk, &directory),
        };
        synced.map_err(Stop::of_file)?;
    }
    let (first, parts, mut end) = (*done, manifest.parts.len(), 0);
    staged.each_part(first..parts, |part, rows| {
        if turns.shutdown.has_begun() {
            return Err(Stop::Later(Error::Closed));
        }
        end = append_part(writer, rows, &Marker::new(manifest, part + 1))?;
        *done = part + 1;
        // A driver that waits for the commit sees its progress.
        writer.home.page.ring(Word::Taken);
        let is_turn = (*done - first).is_multiple_of(TURN);
        Ok(!(is_turn && (turns.others)()))
    })?;
    if *done == parts && !planted(Bug::FinishEarly) {
        writer.engine.flush_to(end)?;
    }
    Ok(true)
}

/// The refusal where the log has some parts of a batch, of a commit that is gone.
fn cut(found: &Marker, last: &Marker) -> Stop {
    let Marker {
        batch, part, parts, ..
    } = found;
    let way_out = match last.batch == *batch {
        true => RESOLVE.to_owned(),
        // A resolution would be the last marker, and hide those of later batches.
        false => format!(
            "batch {} follows it in the log; start with a new checkpoint directory",
            last.batch
        ),
    };
    Stop::Refuse(Refusal {
        reason: format!(
            "part {part} of {parts} of batch {batch} is in the log, by another commit that is \
             gone; {way_out}"
        ),
        appended: true,
    })
}

/// What becomes of a commit that stopped after `done` of its parts.
fn stopped(
    disk: &dyn Disk,
    pending: &mut Pending,
    manifest: &Manifest,
    done: usize,
    stop: Stop,
) -> Stop {
    match stop {
        Stop::Refuse(refusal) if done > 0 => {
            let (parts, reason) = (manifest.parts.len(), refusal.reason);
            Stop::Refuse(Refusal {
                reason: format!("{reason}; {done} of {parts} parts are in the log; {RESOLVE}"),
                appended: true,
            })
        }
        // Without room it may wait for long. Whoever waits may withdraw it as long as nothing of it
        // is in the log; where it is not known what an append has left, nobody may.
        Stop::Later(error) if done == 0 && pending.is_begun() && leaves_nothing(&error) => {
            if !planted(Bug::KeepBegun) {
                let _ = pending.take_back(disk);
            }
            Stop::Later(error)
        }
        stop => stop,
    }
}

/// Whether an append that failed with this error has left nothing in the log, for sure.
fn leaves_nothing(error: &Error) -> bool {
    !error.ends_writing() || matches!(error, Error::Closed)
}

/// Appends the rows of one part with its marker; returns the end of it.
fn append_part(writer: &Writer, rows: &mut PartRows<'_>, marker: &Marker) -> Result<u64, Stop> {
    let engine = &*writer.engine;
    let mut marker = marker.encode(engine, rows.clock_ms())?;
    let topic = engine.topic_for_append(marker::TOPIC)?;
    let mut batches: Vec<(&Topic, &mut Batch)> = rows.by_topic().collect();
    batches.push((&topic, &mut marker));
    engine
        .append_staged(&mut batches, Atomicity::Whole)
        .map_err(|error| match error {
            error @ Error::TooLarge { .. } => Stop::refuse(error),
            error => Stop::Later(error),
        })
}
