//! Appending a commit, part by part.

use super::Clock;
use super::manifest::Pending;
use super::marker::{self, Marker};
use super::rows::PartRows;
use super::staged::Staged;
use crate::engine::commit_log::atomic;
use crate::engine::commit_log::shared::Shared;
use crate::engine::{Appended, Topic};
use crate::error::{Error, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::Batch;

/// Why a commit was not appended.
pub enum Stop {
    /// It never can be.
    Refuse(Error),
    /// Not at the moment.
    Later(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Later(error)
    }
}

/// Appends a commit, or what of it is not in the log yet, and takes its files away.
pub fn append(shared: &Shared, pending: &mut Pending, clock: Clock<'_>) -> Result<(), Stop> {
    let disk = &*shared.disk;
    let Some(manifest) = pending.manifest.clone() else {
        let reason = "it is no manifest of this version";
        return Err(Stop::Refuse(Error::corrupt(pending.path(), 0, reason)));
    };
    marker::complete(shared)?;
    let last = marker::last(shared, &manifest.query)?;
    let done = match last.map(|(marker, _)| marker) {
        Some(last) if last.batch > manifest.batch => manifest.parts.len(),
        Some(last) if last.batch == manifest.batch && last.part >= last.parts => {
            manifest.parts.len()
        }
        Some(last) if last.batch == manifest.batch => {
            if last.commit != manifest.id {
                let reason = format!(
                    "part {} of {} of batch {} is in the log, by another commit that is gone",
                    last.part, last.parts, last.batch
                );
                return Err(Stop::Refuse(Error::corrupt(pending.path(), 0, reason)));
            }
            index(last.part)
        }
        _ => 0,
    };
    if done < manifest.parts.len() {
        let directory = pending.directory.clone();
        let staged = Staged {
            shared,
            directory: &directory,
            manifest: &manifest,
            clock,
        };
        // A single part is all there or not at all.
        if !pending.is_begun() {
            if manifest.parts.len() > 1 {
                staged.look_through()?;
            }
            if !pending.begin(disk)? {
                return Ok(());
            }
        }
        let mut end = shared.log.published();
        staged.each_part(done, |part, rows| {
            if shared.stopping() {
                return Err(Stop::Later(Error::Closed));
            }
            let begin = end;
            end = append_part(shared, rows, &Marker::new(&manifest, part + 1))?;
            shared.log.write_back(begin, end);
            Ok(())
        })?;
        if !planted(Bug::FinishEarly) {
            shared.flush_to(end)?;
        }
    } else {
        // What a process had appended before it died is in the log, perhaps not on the disk.
        shared.flush_to(shared.log.published())?;
    }
    // For readers in other processes, who see what is dispatched. A disk that is too full for it
    // keeps nothing back that is durable.
    let _ = shared.dispatcher.catch_up(shared.log.readable_end());
    pending.finish(disk)?;
    Ok(())
}

/// Appends the rows of one part with its marker; returns the end of it.
fn append_part(shared: &Shared, rows: &mut PartRows<'_>, marker: &Marker) -> Result<u64, Stop> {
    let mut marker = marker.encode(shared, rows.clock_ms())?;
    let topic = shared.topic_for_append(marker::TOPIC);
    let mut parts: Vec<(&Topic, &mut Batch)> = rows.by_topic().collect();
    parts.push((&topic, &mut marker));
    let mut appended = Appended::default();
    atomic::append(shared, &mut parts, &mut appended).map_err(|error| match error {
        error @ Error::TooLarge { .. } => Stop::Refuse(error),
        error => Stop::Later(error),
    })?;
    shared.announce(appended.end);
    Ok(appended.end)
}
