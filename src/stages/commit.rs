//! Committing: the stages that count are named in a manifest, and the writer of the log is waited
//! for.
//!
//! Of two manifests of a batch the earlier one is dealt with first. A batch that is run again need
//! not cut its rows into stages as before, so two attempts are never mixed. Then the later one is
//! published: the markers in the log tell whether it is the same batch, or another of its number.
//!
//! A manifest is not synced, and neither are the stages that it names: nobody is told that a commit
//! is done before the log is durable. One that a loss of power has damaged never happened. The
//! writer takes it away, and the batch is run again.

use super::manifest::{
    CommitKind, Conflict, Manifest, Name, Refusal, Resolution, Stretch, files, read, refusal, sync,
    unlink,
};
use super::stager::Stage;
use super::{directory_of, make_directory, part_len, unique};
use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, Holder};
use crate::engine::directory::names;
use crate::engine::directory::page::{StatePage, Word};
use crate::error::{Error, Op, Result};
use crate::plant::{Bug, planted};
use crate::record::Contents;
use crate::region::Access;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is committed together.
#[derive(Clone, Debug)]
pub struct Commit<'a> {
    /// The query: what its batches have in common, and no other's have.
    pub query: &'a str,
    /// Number of the batch in its query.
    pub batch: u64,
    /// What it is one of.
    pub kind: CommitKind,
    /// What becomes of it where the log holds its number with other rows.
    pub conflict: Conflict,
    /// The stages that count, in the order of their rows. Not empty.
    pub stages: &'a [Stage],
}

/// Whose manifest the writer is to take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// That of this commit.
    Own,
    /// An earlier one of the same batch.
    Earlier,
}

/// How far a commit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// Nobody has begun it.
    Pending,
    /// The writer has begun it.
    Begun,
    /// It can never be appended.
    Refused(Refusal),
    /// There is no manifest: it was appended, or withdrawn.
    Gone,
}

/// Leaves the manifest of a commit, and rings for the writer.
///
/// Nothing is durable on return: a loss of power may take the commit away until its rows are in the
/// durable log, which [`crate::Store::holds_commit`] tells.
///
/// # Errors
///
/// [`Error::Io`]: then nothing is committed.
pub fn publish(disk: &dyn Disk, root: &Path, commit: &Commit<'_>) -> Result<Published> {
    let stretches = commit.stages.iter().flat_map(|stage| &stage.stretches);
    let len = stretches.map(|it| it.end - it.start).sum();
    publish_cut(disk, root, commit, part_len(len))
}

/// [`publish`] with parts of at most `part_len` bytes or one stretch.
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

/// Says what becomes of a batch of a stream of which a part is in the log, and the rest cannot
/// follow. The writer takes it up like a commit, and refuses it where there is no such batch. As
/// with a commit nothing is durable before that.
///
/// # Errors
///
/// [`Error::Io`]: then nothing is said.
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

/// Leaves a manifest, and rings for the writer.
fn leave(disk: &dyn Disk, root: &Path, manifest: &Manifest) -> Result<Published> {
    let directory = make_directory(disk, root, &manifest.query)?;
    // Why an earlier attempt was refused is no business of this one.
    unlink(disk, &directory.join(Name::Refused(manifest.batch).text()))?;
    let path = directory.join(Name::Commit(manifest.batch).text());
    let temporary = directory.join(format!("commit-{}.tmp", manifest.id));
    let io = |op| {
        let path = temporary.clone();
        move |error| Error::io(op, path, error)
    };
    let written = disk.write_at(&temporary, 0, &manifest.text());
    written.map_err(io(Op::Write))?;
    let taken = directory.join(Name::Taken(manifest.batch).text());
    let begun = disk.stat(&taken).map_err(io(Op::Stat))?.is_some();
    let published = match begun {
        true if planted(Bug::ReplaceManifest) => {
            disk.rename(&temporary, &taken).map_err(io(Op::Rename))?;
            Published::Own
        }
        true => Published::Earlier,
        false => match disk.rename_new(&temporary, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Published::Earlier,
            renamed => renamed.map_err(io(Op::Rename)).map(|()| Published::Own)?,
        },
    };
    if published == Published::Earlier {
        // Its stages stay: once the earlier commit is dealt with, they may be committed.
        unlink(disk, &temporary)?;
        if planted(Bug::EarlierWins) {
            discard(disk, root, &manifest.query, &manifest.stages)?;
            return Ok(Published::Own);
        }
    }
    // The manifest has its name. A writer that is not woken meets it later, or the driver opens the
    // store itself.
    let _ = ring(disk, root);
    Ok(published)
}

/// Stretches of stages, gathered to parts of at most `part_len` bytes or one stretch.
fn parts(stages: &[Stage], part_len: u64) -> Vec<Vec<Stretch>> {
    let mut parts: Vec<Vec<Stretch>> = Vec::new();
    let mut len = 0;
    for (stage, found) in stages.iter().enumerate() {
        for range in &found.stretches {
            let stretch = Stretch {
                stage,
                begin: range.start,
                end: range.end,
            };
            len += range.end - range.start;
            match parts.last_mut() {
                Some(part) if len <= part_len => part.push(stretch),
                _ => {
                    len = range.end - range.start;
                    parts.push(vec![stretch]);
                }
            }
        }
    }
    parts
}

/// The state page of a store that is there.
fn page(disk: &dyn Disk, root: &Path) -> Result<Option<StatePage>> {
    match StatePage::open(disk, root, Access::ReadWrite) {
        Err(error) if error.is_not_found() => Ok(None),
        page => page,
    }
}

/// Wakes the writer, where there is one.
fn ring(disk: &dyn Disk, root: &Path) -> Result<()> {
    if let Some(page) = page(disk, root)? {
        page.ring(Word::Pending);
    }
    Ok(())
}

/// How far the commit of a batch is.
pub fn state(disk: &dyn Disk, root: &Path, query: &str, batch: u64) -> Result<CommitState> {
    let directory = directory_of(root, query)?;
    let is_there = |name: Name| {
        let path = directory.join(name.text());
        let found = disk.stat(&path).map_err(|e| Error::io(Op::Stat, &path, e));
        found.map(|entry| entry.is_some())
    };
    // In the order in which it gets the names, so that none is missed between two looks: pending,
    // begun, and pending again where there was no room.
    for (name, state) in [
        (Name::Commit(batch), CommitState::Pending),
        (Name::Taken(batch), CommitState::Begun),
        (Name::Commit(batch), CommitState::Pending),
    ] {
        if is_there(name)? {
            return Ok(state);
        }
    }
    let refused = refusal(disk, &directory.join(Name::Refused(batch).text()))?;
    Ok(refused.map_or(CommitState::Gone, CommitState::Refused))
}

/// How long a wait lasts in which no commit gets on. One that has its turn after others waits while
/// they are appended, and a long one while its own parts are.
#[derive(Debug)]
pub struct Patience {
    timeout: Duration,
    /// When a commit got on, or the wait began.
    since: Instant,
    /// How often one has got on, by the state page.
    seen: Option<u32>,
}

impl Patience {
    /// Of a wait that begins.
    pub fn new(timeout: Duration) -> Patience {
        Patience {
            timeout,
            since: Instant::now(),
            seen: None,
        }
    }

    /// What is left of it.
    pub fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.since.elapsed())
    }

    fn note(&mut self, seen: u32) {
        if self.seen.replace(seen).is_some_and(|before| before != seen) {
            self.since = Instant::now();
        }
    }
}

/// Waits until the writer has dealt with the commit of a batch, for `slice` or a little more, and
/// not beyond the end of `patience`. Returns at once where nobody writes the store: then who
/// commits may open it. The second part of the answer is whether somebody does.
pub fn wait(
    disk: &dyn Disk,
    root: &Path,
    (query, batch): (&str, u64),
    patience: &mut Patience,
    slice: Duration,
) -> Result<(CommitState, bool)> {
    const LOOK: Duration = Duration::from_millis(50);
    let began = Instant::now();
    let lock = root.join(names::LOCK);
    loop {
        let page = page(disk, root)?;
        let seen = page.as_ref().map_or(0, |page| page.read_word(Word::Taken));
        patience.note(seen);
        let state = state(disk, root, query, batch)?;
        let holder = disk
            .probe(&lock)
            .map_err(|e| Error::io(Op::Stat, &lock, e))?;
        let left = slice.saturating_sub(began.elapsed()).min(patience.left());
        if matches!(state, CommitState::Refused(_)) {
            // Whoever hears of it may commit the rows under another name. A loss of power must not
            // bring the manifest back, and the writer may not have made that durable yet.
            sync(disk, &directory_of(root, query)?)?;
        }
        let waits = matches!(state, CommitState::Pending | CommitState::Begun);
        if !waits || holder == Holder::Nobody || left.is_zero() {
            return Ok((state, holder != Holder::Nobody));
        }
        match page {
            Some(page) => page.sleep_on(Word::Taken, seen, left.min(LOOK)),
            None => std::thread::sleep(left.min(LOOK)),
        }
    }
}

/// Who writes the store, as far as its state page tells.
pub fn writer(disk: &dyn Disk, root: &Path) -> Result<Option<u32>> {
    let page = StatePage::open(disk, root, Access::Read)?;
    Ok(page.and_then(|page| page.pid()))
}

/// Withdraws the commit of a batch with its stages. False where the writer has begun it, or has
/// dealt with it.
pub fn withdraw(disk: &dyn Disk, root: &Path, query: &str, batch: u64) -> Result<bool> {
    let directory = directory_of(root, query)?;
    let path = directory.join(Name::Commit(batch).text());
    let Some(pending) = read(disk, &directory, Name::Commit(batch))? else {
        return Ok(false);
    };
    let taken = directory.join(Name::Taken(batch).text());
    let begun = disk.stat(&taken);
    if begun.map_err(|e| Error::io(Op::Stat, &taken, e))?.is_some() {
        // Where no file can be renamed to a free name in one step, a dead writer may leave both.
        return Ok(false);
    }
    let away = directory.join(format!("withdrawn-{}.tmp", unique()));
    match disk.rename(&path, &away) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        renamed => renamed.map_err(|e| Error::io(Op::Rename, &path, e))?,
    }
    sync(disk, &directory)?;
    unlink(disk, &away)?;
    let stages = pending.manifest.map_or_else(Vec::new, |it| it.stages);
    discard(disk, root, query, &stages)?;
    Ok(true)
}

/// Takes stages away, but for those that a manifest names.
pub fn discard(disk: &dyn Disk, root: &Path, query: &str, stages: &[String]) -> Result<()> {
    let directory = directory_of(root, query)?;
    let mut named = HashSet::new();
    for (_, name) in files(disk, &directory)? {
        if matches!(name, Name::Commit(_) | Name::Taken(_)) {
            match read(disk, &directory, name)? {
                Some(pending) => named.extend(pending.manifest.into_iter().flat_map(|m| m.stages)),
                // Just begun: what it names is not known, so everything stays for the sweep.
                None => return Ok(()),
            }
        }
    }
    for stage in stages {
        if Name::of(stage) == Name::Stage && !named.contains(stage) {
            unlink(disk, &directory.join(stage))?;
        }
    }
    Ok(())
}

/// Takes the directory of a query away that will have no other commit, with all of ours in it.
pub fn close(disk: &dyn Disk, root: &Path, query: &str) -> Result<()> {
    let directory = directory_of(root, query)?;
    let found = files(disk, &directory)?;
    if found
        .iter()
        .any(|(_, name)| matches!(name, Name::Commit(_) | Name::Taken(_) | Name::Other))
    {
        return Ok(());
    }
    for (name, _) in found {
        unlink(disk, &directory.join(name))?;
    }
    // A task that was forgotten may have just made a file in it.
    let _ = disk.remove_directory(&directory);
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
