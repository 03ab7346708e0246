//! Committing: names the stages that count in a manifest, and waits for the writer of the log.
//!
//! Of two manifests of a batch, the earlier one is processed first. A batch that runs again may
//! divide its rows into other stages, so two attempts are never mixed. Then the later one is
//! published: the markers in the log tell whether it is the same batch, or another one with its
//! number.
//!
//! Neither a manifest nor its stages are synced: a commit is reported as done only when the log is
//! durable. If a power loss damages a manifest, the commit never happened: the writer removes it,
//! and the batch runs again.

use super::manifest::{CommitKind, Conflict, Manifest, Resolution, Slice, part_len};
use super::name::Name;
use super::pending::{Refusal, files, read, refusal, sync};
use super::place::{QueryPlace, StagePlace, unique, unlink};
use super::stager::Stage;
use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, Holder};
use crate::engine::directory::page::Word;
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::Contents;
use crate::region::Access;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Stages that are committed together.
#[derive(Clone, Debug)]
pub struct Commit<'a> {
    /// The query: shared by its batches, and unique to it.
    pub query: &'a str,
    /// Number of the batch in its query.
    pub batch: u64,
    /// Whether the batch belongs to a stream.
    pub kind: CommitKind,
    /// What happens if the log holds this batch number with other rows.
    pub conflict: Conflict,
    /// The stages that make up the commit, in row order. Not empty.
    pub stages: &'a [Stage],
}

/// Which manifest the writer will take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// That of this commit.
    Own,
    /// An earlier one of the same batch.
    Earlier,
}

/// The state of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// The writer has not begun it.
    Pending,
    /// The writer has begun it.
    Begun,
    /// It can never be appended.
    Refused(Refusal),
    /// There is no manifest: the commit was appended or withdrawn.
    Gone,
}

/// Publishes the manifest of a commit and wakes the writer.
///
/// Nothing is durable on return: a power loss can undo the commit until its rows are in the durable
/// log, which [`crate::Store::holds_commit`] tells.
///
/// # Errors
///
/// [`crate::Error::Io`]: nothing is committed.
pub fn publish(disk: &dyn Disk, root: &Path, commit: &Commit<'_>) -> Result<Published> {
    let slices = commit.stages.iter().flat_map(|stage| &stage.slices);
    let len = slices.map(|it| it.end - it.start).sum();
    publish_cut(disk, root, commit, part_len(len))
}

/// [`publish`] with parts of at most `part_len` bytes, or one slice if that is longer.
pub(crate) fn publish_cut(
    disk: &dyn Disk,
    root: &Path,
    commit: &Commit<'_>,
    part_len: u64,
) -> Result<Published> {
    let mut contents = Contents::default();
    for stage in commit.stages {
        contents.add(stage.contents);
    }
    let manifest = Manifest {
        query: commit.query.to_owned(),
        batch: commit.batch,
        kind: commit.kind,
        created_ms: RealClock.now_ms(),
        contents: Some(contents),
        conflict: commit.conflict,
        resolution: None,
        stages: commit.stages.iter().map(|it| it.name.clone()).collect(),
        parts: parts(commit.stages, part_len),
        id: unique(),
    };
    leave(disk, root, &manifest)
}

/// Decides what happens to a batch of a stream that is only partly in the log and cannot be
/// completed. The writer takes this up like a commit, and refuses it if there is no such batch. As
/// with a commit, nothing is durable before that.
///
/// # Errors
///
/// [`crate::Error::Io`]: nothing is decided.
pub fn resolve(
    disk: &dyn Disk,
    root: &Path,
    (query, batch): (&str, u64),
    resolution: Resolution,
) -> Result<Published> {
    let manifest = Manifest {
        query: query.to_owned(),
        batch,
        kind: CommitKind::Stream,
        created_ms: RealClock.now_ms(),
        contents: None,
        conflict: Conflict::Fail,
        resolution: Some(resolution),
        stages: Vec::new(),
        parts: vec![Vec::new()],
        id: unique(),
    };
    leave(disk, root, &manifest)
}

/// Publishes a manifest and wakes the writer.
fn leave(disk: &dyn Disk, root: &Path, manifest: &Manifest) -> Result<Published> {
    let stages = StagePlace::of(disk, root)?;
    let place = stages.make(disk, &manifest.query)?;
    // A refusal of an earlier attempt does not concern this one.
    unlink(disk, &place.path(&Name::Refused(manifest.batch).text()))?;
    let path = place.path(&Name::Commit(manifest.batch).text());
    let temporary = place.path(&format!("commit-{}.tmp", manifest.id));
    disk.write_at(&temporary, 0, &manifest.text())?;
    let taken = place.path(&Name::Taken(manifest.batch).text());
    let begun = disk.stat(&taken)?.is_some();
    let published = match begun {
        true if planted(Bug::ReplaceManifest) => {
            disk.rename(&temporary, &taken)?;
            Published::Own
        }
        true => Published::Earlier,
        false => match disk.rename_new(&temporary, &path) {
            Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => Published::Earlier,
            renamed => renamed.map(|()| Published::Own)?,
        },
    };
    if published == Published::Earlier {
        // Its stages stay: they may be committed after the earlier commit is finished.
        unlink(disk, &temporary)?;
        if planted(Bug::EarlierWins) {
            discard(disk, root, &manifest.query, &manifest.stages)?;
            return Ok(Published::Own);
        }
    }
    // The manifest has its name. If the writer is not woken, it finds the manifest later, or the
    // driver opens the store itself.
    let _ = notify(disk, &stages);
    Ok(published)
}

/// Divides the slices of stages into parts of at most `part_len` bytes, or one slice if that
/// is longer.
fn parts(stages: &[Stage], part_len: u64) -> Vec<Vec<Slice>> {
    let mut parts: Vec<Vec<Slice>> = Vec::new();
    let mut len = 0;
    for (stage, found) in stages.iter().enumerate() {
        for range in &found.slices {
            let slice = Slice {
                stage,
                begin: range.start,
                end: range.end,
            };
            len += range.end - range.start;
            match parts.last_mut() {
                Some(part) if len <= part_len => part.push(slice),
                _ => {
                    len = range.end - range.start;
                    parts.push(vec![slice]);
                }
            }
        }
    }
    parts
}

/// Wakes the writer, if there is one.
fn notify(disk: &dyn Disk, stages: &StagePlace) -> Result<()> {
    if let Some(page) = stages.page(disk, Access::ReadWrite)? {
        page.notify(Word::Pending);
    }
    Ok(())
}

/// The state of the commit of a batch.
pub fn state(disk: &dyn Disk, root: &Path, query: &str, batch: u64) -> Result<CommitState> {
    state_at(disk, &StagePlace::of(disk, root)?.query(query)?, batch)
}

fn state_at(disk: &dyn Disk, place: &QueryPlace, batch: u64) -> Result<CommitState> {
    let is_there = |name: Name| {
        let path = place.path(&name.text());
        let found = disk.stat(&path);
        found.map(|entry| entry.is_some())
    };
    // Checked in the order in which a manifest gets these names, so that it is not missed between
    // two checks: pending, begun, and pending again if there was no room.
    for (name, state) in [
        (Name::Commit(batch), CommitState::Pending),
        (Name::Taken(batch), CommitState::Begun),
        (Name::Commit(batch), CommitState::Pending),
    ] {
        if is_there(name)? {
            return Ok(state);
        }
    }
    let refused = refusal(disk, &place.path(&Name::Refused(batch).text()))?;
    Ok(refused.map_or(CommitState::Gone, CommitState::Refused))
}

/// A timeout for waiting without progress of any commit. So a commit can wait longer while others
/// are appended before it, or while its own parts are.
#[derive(Debug)]
pub struct Patience {
    timeout: Duration,
    /// When a commit last made progress, or the wait began.
    since: Instant,
    /// The counter of progress in the state page.
    seen: Option<u32>,
}

impl Patience {
    /// For a wait that begins.
    pub fn new(timeout: Duration) -> Patience {
        Patience {
            timeout,
            since: Instant::now(),
            seen: None,
        }
    }

    /// The remaining time.
    pub fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.since.elapsed())
    }

    fn note(&mut self, seen: u32) {
        if self.seen.replace(seen).is_some_and(|before| before != seen) {
            self.since = Instant::now();
        }
    }
}

/// Waits until the writer has finished the commit of a batch: for about `slice`, and not after the
/// end of `patience`. Returns at once if no process writes the store: then the caller may open it.
/// The second result tells whether a process writes the store.
pub fn wait(
    disk: &dyn Disk,
    root: &Path,
    (query, batch): (&str, u64),
    patience: &mut Patience,
    slice: Duration,
) -> Result<(CommitState, bool)> {
    const PAUSE: Duration = Duration::from_millis(50);
    let began = Instant::now();
    let stages = StagePlace::of(disk, root)?;
    let place = stages.query(query)?;
    loop {
        let page = stages.page(disk, Access::ReadWrite)?;
        let seen = page.as_ref().map_or(0, |page| page.read_word(Word::Taken));
        patience.note(seen);
        let state = state_at(disk, &place, batch)?;
        let holder = disk.probe(&stages.lock())?;
        let left = slice.saturating_sub(began.elapsed()).min(patience.left());
        if matches!(state, CommitState::Refused(_)) {
            // A caller that sees this may commit the rows under another name. The removal of the
            // manifest must be durable first, so that a power loss cannot bring it back, and the
            // writer may not have synced it yet.
            sync(disk, &place.folder)?;
        }
        let waits = matches!(state, CommitState::Pending | CommitState::Begun);
        if !waits || holder == Holder::Nobody || left.is_zero() {
            return Ok((state, holder != Holder::Nobody));
        }
        match page {
            Some(page) => page.sleep_on(Word::Taken, seen, left.min(PAUSE)),
            None => std::thread::sleep(left.min(PAUSE)),
        }
    }
}

/// The process that writes the store, if it is known.
pub fn writer(disk: &dyn Disk, root: &Path) -> Result<Option<u32>> {
    StagePlace::of(disk, root)?.pid_of_writer(disk)
}

/// Withdraws the commit of a batch and its stages. Returns false if the writer has begun or
/// finished it.
pub fn withdraw(disk: &dyn Disk, root: &Path, query: &str, batch: u64) -> Result<bool> {
    let place = StagePlace::of(disk, root)?.query(query)?;
    let path = place.path(&Name::Commit(batch).text());
    let Some(pending) = read(disk, &place, Name::Commit(batch))? else {
        return Ok(false);
    };
    let taken = place.path(&Name::Taken(batch).text());
    if disk.stat(&taken)?.is_some() {
        // Where a file cannot be renamed to a free name atomically, a dead writer may leave both
        // names.
        return Ok(false);
    }
    let away = place.path(&format!("withdrawn-{}.tmp", unique()));
    match disk.rename(&path, &away) {
        Err(error) if error.is_not_found() => return Ok(false),
        renamed => renamed?,
    }
    sync(disk, &place.folder)?;
    unlink(disk, &away)?;
    let stages = pending.manifest.map_or_else(Vec::new, |it| it.stages);
    discard(disk, root, query, &stages)?;
    Ok(true)
}

/// Removes stages, except those that a manifest names.
pub fn discard(disk: &dyn Disk, root: &Path, query: &str, stages: &[String]) -> Result<()> {
    let place = StagePlace::of(disk, root)?.query(query)?;
    let mut named = HashSet::new();
    for (_, name) in files(disk, &place)? {
        if matches!(name, Name::Commit(_) | Name::Taken(_)) {
            match read(disk, &place, name)? {
                Some(pending) => named.extend(pending.manifest.into_iter().flat_map(|m| m.stages)),
                // The writer has just begun it. Its stages are unknown, so all of them are left to
                // the sweep.
                None => return Ok(()),
            }
        }
    }
    for stage in stages {
        if Name::of(stage) == Name::Stage && !named.contains(stage) {
            unlink(disk, &place.path(stage))?;
        }
    }
    Ok(())
}

/// Removes the directory of a query that will have no further commits, with Forebay's files in it.
pub fn close(disk: &dyn Disk, root: &Path, query: &str) -> Result<()> {
    let place = StagePlace::of(disk, root)?.query(query)?;
    let found = files(disk, &place)?;
    if found
        .iter()
        .any(|(_, name)| matches!(name, Name::Commit(_) | Name::Taken(_) | Name::Other))
    {
        return Ok(());
    }
    for (name, _) in found {
        unlink(disk, &place.path(&name))?;
    }
    place.remove(disk);
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn patience_begins_anew_when_a_commit_gets_on() {
        let mut patience = Patience::new(Duration::from_secs(60));
        let began = patience.since;
        while Instant::now() == began {}
        patience.note(7);
        patience.note(7);
        assert_eq!(patience.since, began);
        patience.note(8);
        assert!(patience.since > began);
    }
}
