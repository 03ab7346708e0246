//! Intake: what other processes have staged and committed is appended, each commit exactly once.
//!
//! Rows come from tasks in processes that do not write the log. Each task stages its rows in a file
//! of its own; who commits leaves a manifest that names the files of the tasks that count
//! ([`crate::stages`]). The process that writes the log takes manifests up:
//!
//! ```text
//!   forebay.stages/<query>/stage-*            rows, as records          by tasks
//!                         /commit-<batch>     the manifest: pending     by who commits
//!                         /taken-<batch>      the manifest: begun       by the writer
//!                         /refused-<batch>    why it can never be appended
//!
//!   look at the markers --> rename commit to taken --> each part one atomic batch, its marker last
//!   --> flush --> unlink the stages --> unlink the manifest --> wake who waits
//! ```
//!
//! The *markers* decide what is in the log: the last row of each part is one, in the same atomic
//! batch as the part's rows. Parts up to the last marker of a query are passed over, so a crash
//! between any two steps neither loses a row nor appends one twice. The names of the files are no
//! more than a list of what is to be done.
//!
//! Renaming `commit` to `taken` is what tells a commit that has begun from one that may still be
//! withdrawn: both are renames of one name, so one of them fails. A commit that finds no room
//! before its first part is in the log gets the name `commit` back, unless another has it by then.
//!
//! Commits of different queries take turns of a few parts each. One that is alone goes on until
//! another comes.

mod append;
pub(crate) mod manifest;
mod marker;
mod rows;
mod staged;
mod sweep;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod test;

use super::shared::Shared;
use super::state::Word;
use crate::disk::Kind;
use crate::error::{Error, Result};
use append::{Known, Stop, Turn, Turns};
use manifest::{Pending, Refusal};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use marker::{holds, keep as keep_markers};

/// The directory of stages and manifests, in that of the store.
pub const DIRECTORY: &str = "forebay.stages";
/// How often the flush service looks whether there is such a directory.
pub const LOOK: Duration = Duration::from_secs(1);
/// How soon what failed, for want of room or because the log is busy, is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long the thread sleeps where nobody wakes it.
const REST: Duration = Duration::from_secs(600);

/// What whoever takes manifests up remembers.
#[derive(Debug, Default)]
struct Alone {
    due: sweep::Due,
    /// Commits whose staged rows were checked, by their ids. One that waits for room is not checked
    /// again each time it is tried.
    checked: HashSet<String>,
    /// Commits that are to be refused, by their ids. What failed for good may seem to work when it
    /// is tried again: a sync does.
    refused: HashMap<String, Refusal>,
}

/// The state of the intake.
#[derive(Debug, Default)]
pub struct Intake {
    /// Held while a manifest is taken up, or a marker kept.
    alone: Mutex<Alone>,
    thread: Mutex<Service>,
}

#[derive(Debug, Default)]
struct Service {
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl Intake {
    fn try_alone(&self) -> Option<MutexGuard<'_, Alone>> {
        self.alone.try_lock()
    }

    /// Waits for the thread, which `Shared::stop` has told to end.
    pub fn end(&self) {
        let thread = {
            let mut service = self.thread.lock();
            service.ended = true;
            service.thread.take()
        };
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Starts the thread, where there is a directory of stages and no thread yet.
pub fn start(shared: &Arc<Shared>) {
    let mut service = shared.intake.thread.lock();
    let started = service.ended || service.thread.is_some() || shared.stopping();
    if started || !is_asked_for(shared) {
        return;
    }
    let own = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("forebay-intake".to_owned());
    // Where no thread can be had the next look tries again.
    service.thread = thread.spawn(move || run(&own)).ok();
}

fn is_asked_for(shared: &Shared) -> bool {
    let found = shared.disk.look(&shared.root.join(DIRECTORY));
    found.is_ok_and(|entry| entry.is_some_and(|entry| entry.kind == Kind::Directory))
}

fn run(shared: &Shared) {
    let state = &shared.log.state;
    while !shared.stopping() && shared.health.check().is_ok() {
        // Looked at before the work: what is left meanwhile wakes at once.
        let seen = state.look(Word::Pending);
        let pause = match step(shared) {
            Ok(()) => REST,
            Err(_) => RETRY,
        };
        if !shared.stopping() {
            state.sleep_on(Word::Pending, seen, pause);
        }
    }
}

/// Takes up all that is pending; what was taken up is durable on return.
///
/// A commit that can never be appended is refused, by a file that says why. One that cannot be
/// appended at the moment keeps the later ones of its query waiting, and the first such error is
/// returned. Commits of different queries take turns, so that none waits for all of a long one:
/// those that are there, and those that come meanwhile and ring.
pub fn step(shared: &Shared) -> Result<()> {
    let mut alone = shared.intake.alone.lock();
    let alone = &mut *alone;
    if !is_asked_for(shared) {
        return Ok(());
    }
    let rung = || shared.log.state.look(Word::Pending);
    // Those of a query wait for one another, those of different queries do not.
    let mut waiting = HashSet::new();
    let (mut queries, mut listed) = (VecDeque::new(), None);
    let mut known = Known::default();
    let mut first = None;
    loop {
        // Looked at before the listing: what comes meanwhile is listed in the next round.
        let seen = rung();
        if listed != Some(seen) {
            queries = list(shared, &queries, &mut waiting, &mut first)?;
            listed = Some(seen);
        }
        let Some(mut query): Option<Query> = queries.pop_front() else {
            break;
        };
        let Some(mut pending) = query.pop_front() else {
            continue;
        };
        let others = || !queries.is_empty() || rung() != seen;
        let turns = Turns {
            checked: &mut alone.checked,
            known: &mut known,
            others: &others,
        };
        match take(shared, &mut pending, &mut alone.refused, turns) {
            Ok(Turn::Last) => {}
            Ok(Turn::More) => query.push_front(pending),
            Err(error) => {
                waiting.insert(pending.query);
                first.get_or_insert(error);
                continue;
            }
        }
        if !query.is_empty() {
            queries.push_back(query);
        }
    }
    if first.is_none() {
        // Nothing waits.
        alone.checked.clear();
        alone.refused.clear();
        alone.due.sweep(shared, shared.clock.now_ms());
    }
    first.map_or(Ok(()), Err)
}

/// The commits of one query, in their order.
type Query = VecDeque<Pending>;

/// Lists what is to be taken up, but for the queries that are `waiting`: one that cannot be listed
/// is one of them, and the error is the `first`. Queries that were listed `before` keep their turn,
/// the others follow by when their first commit was written.
fn list(
    shared: &Shared,
    before: &VecDeque<Query>,
    waiting: &mut HashSet<String>,
    first: &mut Option<Error>,
) -> Result<VecDeque<Query>> {
    let disk = &*shared.disk;
    let turns = before.iter().filter_map(VecDeque::front).enumerate();
    let turns: HashMap<_, _> = turns.map(|(turn, it)| (it.query.as_str(), turn)).collect();
    let mut queries: Vec<Query> = Vec::new();
    for (name, directory) in manifest::queries(disk, &shared.root)? {
        if waiting.contains(&name) {
            continue;
        }
        match manifest::of_query(disk, &directory) {
            Ok(found) if found.is_empty() => {}
            Ok(found) => queries.push(found.into()),
            Err(error) => {
                waiting.insert(name);
                first.get_or_insert(error);
            }
        }
    }
    queries.sort_by_key(|query| {
        let front = query.front();
        let turn = front.and_then(|it| turns.get(it.query.as_str()));
        let manifest = front.and_then(|it| it.manifest.as_ref());
        let written_ms = manifest.map_or(0, |manifest| manifest.created_ms);
        (turn.copied().unwrap_or(usize::MAX), written_ms)
    });
    Ok(queries.into())
}

/// Takes up one manifest for a turn, or refuses it. `refused` keeps a refusal until it is told.
fn take(
    shared: &Shared,
    pending: &mut Pending,
    refused: &mut HashMap<String, Refusal>,
    turns: Turns<'_>,
) -> Result<Turn> {
    let disk = &*shared.disk;
    let id = pending.manifest.as_ref().map(|it| it.id.clone());
    let refusal = id.as_ref().and_then(|id| refused.get(id)).cloned();
    let appended = match refusal {
        Some(refusal) => Err(Stop::Refuse(refusal)),
        None => append::append(shared, pending, turns),
    };
    match appended {
        Ok(Turn::More) => return Ok(Turn::More),
        Ok(Turn::Last) => {}
        Err(Stop::Refuse(refusal)) => {
            refused.extend(id.map(|id| (id, refusal.clone())));
            // It may have been withdrawn meanwhile, and another have its name: only what is begun
            // is refused.
            if pending.is_begun() || pending.begin(disk)? {
                pending.refuse(disk, &refusal)?;
            }
        }
        Err(Stop::Later(error)) => return Err(error),
    }
    shared.log.state.ring(Word::Taken);
    Ok(Turn::Last)
}

/// Whether a name stands for a query: it becomes a directory and a key.
pub fn is_query(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(known)
}
