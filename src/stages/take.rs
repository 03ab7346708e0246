//! Appends the parts of a commit, one after another.

use super::manifest::{Conflict, Manifest};
use super::marker::{self, Marker};
use super::pending::{Pending, Refusal, sync, sync_up};
use super::rows::PartRows;
use super::staged::{Checked, Staged};
use super::stop::Stop;
use super::writer::Writer;
use crate::disk::Disk;
use crate::engine::directory::page::Word;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::{Atomicity, Topic};
use crate::error::{Error, Result};
use crate::num::index;
use crate::plant::{Bug, Point, pass, planted};
use crate::record::{Batch, Contents};
use std::collections::HashMap;

/// Number of parts appended in one turn while other commits wait. The first part of a turn cannot
/// be encoded in parallel.
const TURN: usize = 8;

/// Number of parts in the log, by the id of the commit's manifest. Valid as long as nobody else
/// appends parts.
pub type Known = HashMap<String, usize>;

/// State that one turn of a commit leaves for the next.
pub struct Turns<'a> {
    /// How much of the staged rows is already checked, by id of the commit.
    pub checked: &'a mut HashMap<String, Checked>,
    /// Parts in the log of commits that have had a turn.
    pub known: &'a mut Known,
    /// Whether another commit waits for its turn.
    pub others: &'a (dyn Fn() -> bool + Sync),
    /// Ends a turn early.
    pub shutdown: &'a Shutdown,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The commit was appended or withdrawn.
    Last,
    /// The commit has parts left for another turn.
    More,
}

/// Appends a commit, or as many missing parts as fit one turn. Removes its files when all of it is
/// appended and durable.
pub fn append(writer: &Writer, pending: &mut Pending, mut turns: Turns<'_>) -> Result<Turn, Stop> {
    let (disk, engine) = (writer.disk(), &*writer.engine);
    let Some(manifest) = pending.manifest.clone() else {
        engine.make_readable(u64::MAX)?;
        return unreadable(writer, pending);
    };
    let mut done = match turns.known.get(&manifest.id) {
        Some(done) => *done,
        None => {
            // Makes the following searches complete.
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
        // Parts that a process appended before it died are in the log, but perhaps not on the disk.
        engine.flush_to(engine.readable_position())?;
        // It may have been withdrawn, and another commit of the batch may have its name.
        if !pending.is_begun() && !pending.begin(disk)? {
            return Ok(Turn::Last);
        }
    }
    // Readers in other processes see only what is dispatched. A driver that finds the manifest gone
    // and no marker yet would consider the commit lost.
    engine.make_readable(engine.durable_position())?;
    pass(Point::Taken);
    pending.finish(disk)?;
    Ok(Turn::Last)
}

/// Handles a manifest that cannot be read. A commit of several parts is durable before its first
/// part is in the log. So if a power loss damaged the manifest, the commit never happened, unless
/// its only part is in the log.
fn unreadable(writer: &Writer, pending: &mut Pending) -> Result<Turn, Stop> {
    let engine = &*writer.engine;
    let (query, batch) = (&pending.place.query, pending.batch());
    let of_batch = marker::last_of_batch(engine, query, batch)?;
    let Some(found) = of_batch.filter(|it| it.part > 0) else {
        let flaw = pending.flaw();
        return Err(Stop::refuse(Error::corrupt(pending.path(), 0, flaw)));
    };
    if !found.is_whole() {
        let last = marker::last(&*writer.engine, query, writer.indexed)?;
        return Err(cut(&found, &last.map_or(found.clone(), |(last, _)| last)));
    }
    // The waiting driver finds in the log which rows the batch has.
    engine.flush_to(engine.readable_position())?;
    if pending.is_begun() || pending.begin(writer.disk())? {
        pending.finish(writer.disk())?;
    }
    Ok(Turn::Last)
}

/// Number of parts of a commit that are in the log or count as if they were.
fn parts_done(writer: &Writer, manifest: &Manifest) -> Result<usize, Stop> {
    let (query, batch) = (&manifest.query, manifest.batch);
    let last = marker::last(&*writer.engine, query, writer.indexed)?.map(|(marker, _)| marker);
    if manifest.resolution.is_some() {
        let is_own = |it: &Marker| it.commit == manifest.id && it.batch == batch;
        let is_cut = |it: &Marker| it.batch == batch && it.part > 0 && !it.is_whole();
        return match last {
            Some(last) if is_own(&last) => Ok(1),
            Some(last) if is_cut(&last) => Ok(0),
            _ => Err(Stop::refuse(format!(
                "there is nothing to resolve: the last commit of this query in the log is not an \
                 incomplete batch {batch}"
            ))),
        };
    }
    let Some(last) = last else {
        return Ok(0);
    };
    if last.batch < batch {
        return parts_below(writer, manifest);
    }
    if last.batch == batch && (last.commit == manifest.id || last.part == 0) {
        return Ok(index(last.part));
    }
    // Spark runs only the last batch again. If the log already has the rows of an earlier batch,
    // they need not be appended again.
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

/// Number of parts of a commit that are in the log before a marker of a lower batch: a conflict was
/// resolved by appending that batch. Other rows of the batch do not count, as the query continues
/// from the lower one.
fn parts_below(writer: &Writer, manifest: &Manifest) -> Result<usize, Stop> {
    let (query, batch) = (&manifest.query, manifest.batch);
    let found = marker::buried(&*writer.engine, query, batch, writer.indexed)?;
    Ok(match found {
        Some(found) if found.commit == manifest.id => index(found.part),
        Some(found) if found.is_whole() && found.contents.is_some() && found.is_of(manifest) => {
            manifest.parts.len()
        }
        _ => 0,
    })
}

/// What to do about a batch that is only partly in the log and cannot be completed.
const RESOLVE: &str = "\"forebay commits show\" lists what is in the log, and \"forebay commits \
                       resolve\" decides whether it counts as appended or is appended again";

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
        "{found}, so this is not a retry: the checkpoint was rolled back, copied or forked, or the \
         query gives other rows each time. Start with a new checkpoint directory, which makes a \
         new query, or set the option batchConflict: append appends the rows, skip skips them"
    )
}

/// Appends the parts of one turn, beginning after `done`, the number of parts in the log. Returns
/// false if the commit was withdrawn meanwhile.
fn append_rest(
    writer: &Writer,
    pending: &mut Pending,
    manifest: &Manifest,
    turns: &mut Turns<'_>,
    done: &mut usize,
) -> Result<bool, Stop> {
    let (disk, place) = (writer.disk(), pending.place.clone());
    let staged = Staged {
        writer,
        place: &place,
        manifest,
        shutdown: turns.shutdown,
    };
    // A single part is in the log completely or not at all. If one of several parts were in the
    // log, and the others damaged or lost with the power, no retry could complete the batch.
    let goes_first = manifest.parts.len() > 1 && *done == 0;
    if goes_first {
        let checked = turns.checked.entry(manifest.id.clone()).or_default();
        if !staged.check(&pending.path(), checked, turns.others)? {
            return Ok(true);
        }
    }
    if !pending.is_begun() && !pending.begin(disk)? {
        return Ok(false);
    }
    pass(Point::Begun);
    // The rename to `taken` must be durable before any row is in the log: a power loss could bring
    // the old name back, and the commit could be withdrawn.
    if *done == 0 {
        let synced = match goes_first {
            true if planted(Bug::BeginUnsynced) => Ok(()),
            true => sync_up(disk, &writer.place, &place),
            false => sync(disk, &place.folder),
        };
        synced.map_err(Stop::of_file)?;
    }
    let (first, parts, mut end) = (*done, manifest.parts.len(), 0);
    staged.each_part(first..parts, |part, rows| {
        if turns.shutdown.has_begun() {
            return Err(Stop::Later(Error::Closed { path: None }));
        }
        end = append_part(writer, rows, &Marker::new(manifest, part + 1))?;
        pass(Point::PartAppended);
        *done = part + 1;
        // A driver that waits for the commit sees the progress.
        writer.words.notify(Word::Taken);
        let is_turn = (*done - first).is_multiple_of(TURN);
        Ok(!(is_turn && (turns.others)()))
    })?;
    if *done == parts && !planted(Bug::FinishEarly) {
        writer.engine.flush_to(end)?;
    }
    Ok(true)
}

/// The refusal if the log has some parts of a batch from a commit that no longer exists.
fn cut(found: &Marker, last: &Marker) -> Stop {
    let Marker {
        batch, part, parts, ..
    } = found;
    let way_out = match last.batch == *batch {
        true => RESOLVE.to_owned(),
        // The resolution would be the last marker, and hide those of later batches.
        false => format!(
            "batch {} follows it in the log; start with a new checkpoint directory",
            last.batch
        ),
    };
    Stop::Refuse(Refusal {
        reason: format!(
            "part {part} of {parts} of batch {batch} is in the log, from another commit that no \
             longer exists; {way_out}"
        ),
        appended: true,
    })
}

/// Handles a commit that stopped after `done` of its parts.
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
        // It may wait long for room. The driver may withdraw it as long as none of it is in the
        // log. If an append may have left something, it must not be withdrawn.
        Stop::Later(error) if done == 0 && pending.is_begun() && leaves_nothing(&error) => {
            if !planted(Bug::KeepBegun) {
                let _ = pending.take_back(disk);
            }
            Stop::Later(error)
        }
        stop => stop,
    }
}

/// Whether an append that failed with this error has certainly left nothing in the log.
fn leaves_nothing(error: &Error) -> bool {
    !error.ends_writing() || matches!(error, Error::Closed { .. })
}

/// Appends the rows of one part with its marker, and returns the end.
fn append_part(writer: &Writer, rows: &mut PartRows<'_>, marker: &Marker) -> Result<u64, Stop> {
    let engine = &*writer.engine;
    let mut marker = marker.encode(engine, rows.clock_ms())?;
    let topic = engine.topic_for_append(marker::TOPIC)?;
    let mut batches: Vec<(&Topic, &mut Batch)> = rows.by_topic().collect();
    let own: (&Topic, &mut Batch) = (&topic, &mut marker);
    let appended = if planted(Bug::MarkerFirst) {
        let first = engine.append_staged(&mut [own], Atomicity::Whole);
        first.and_then(|_| engine.append_staged(&mut batches, Atomicity::Whole))
    } else if planted(Bug::MarkerLater) {
        let first = engine.append_staged(&mut batches, Atomicity::Whole);
        first.and_then(|_| engine.append_staged(&mut [own], Atomicity::Whole))
    } else {
        batches.push(own);
        engine.append_staged(&mut batches, Atomicity::Whole)
    };
    appended.map_err(|error| match error {
        error @ Error::TooLarge { .. } => Stop::refuse(error),
        error => Stop::Later(error),
    })
}
