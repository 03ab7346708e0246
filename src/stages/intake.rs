//! Intake: what other processes have staged and committed is appended, each commit exactly once.
//!
//! Rows come from tasks in processes that do not write the log. Each task stages its rows in a file
//! of its own; who commits leaves a manifest that names the files of the tasks that count. The
//! process that writes the log takes manifests up:
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

use super::manifest::{self, DIRECTORY, Pending, Refusal};
use super::stop::Stop;
use super::take::{self, Known, Turn, Turns};
use super::writer::Writer;
use super::{marker, sweep};
use crate::disk::Kind;
use crate::engine::Files;
use crate::engine::directory::home::Home;
use crate::engine::directory::page::Word;
use crate::engine::service::shutdown::Shutdown;
use crate::error::{Error, Result};
use crate::handle::Service;
use crate::options::Options;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

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

/// Takes up what is committed for a store, as its thread does.
pub struct Intake {
    writer: Writer,
    shutdown: Shutdown,
    /// Held while a manifest is taken up, or a marker kept.
    alone: Mutex<Alone>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Intake {
    /// The intake of a store that was opened for writing with these options; no thread runs yet.
    pub fn new(
        engine: Arc<dyn Files>,
        home: Home,
        options: &Options,
        record_len_max: u64,
    ) -> Intake {
        Intake {
            writer: Writer {
                engine,
                indexed: options.index(),
                unique_ids: options.unique_ids(),
                record_len_max,
                home,
            },
            shutdown: Shutdown::default(),
            alone: Mutex::default(),
            thread: Mutex::default(),
        }
    }

    /// Starts the thread, where there is a directory of stages and no thread yet.
    pub fn start(self: &Arc<Intake>) {
        let mut thread = self.thread.lock();
        if thread.is_some() || self.shutdown.has_begun() || !self.is_asked_for() {
            return;
        }
        let own = Arc::clone(self);
        let named = Builder::new().name("forebay-intake".to_owned());
        // Where no thread can be had the next look tries again.
        *thread = named.spawn(move || own.run()).ok();
    }

    /// Whether the thread was started.
    #[cfg(test)]
    pub(crate) fn has_thread(&self) -> bool {
        self.thread.lock().is_some()
    }

    fn run(&self) {
        let page = &self.writer.home.page;
        while !self.shutdown.has_begun() {
            // Looked at before the work: what is left meanwhile wakes at once.
            let seen = page.read_word(Word::Pending);
            let pause = match self.step() {
                Ok(()) => REST,
                Err(error) if is_final(&error) => return,
                Err(_) => RETRY,
            };
            if !self.shutdown.has_begun() {
                page.sleep_on(Word::Pending, seen, pause);
            }
        }
    }

    fn is_asked_for(&self) -> bool {
        let directory = self.writer.home.root.join(DIRECTORY);
        let found = self.writer.disk().stat(&directory);
        found.is_ok_and(|entry| entry.is_some_and(|entry| entry.kind == Kind::Directory))
    }

    /// Appends again, durably, the last markers of commits that would go with the log below
    /// `until`. False while a manifest is taken up: nothing may go then.
    pub fn keep_markers(&self, until: u64) -> Result<bool> {
        let Some(_alone) = self.alone.try_lock() else {
            return Ok(false);
        };
        marker::keep(&self.writer, until)?;
        Ok(true)
    }

    /// Takes up all that is pending; what was taken up is durable on return.
    ///
    /// A commit that can never be appended is refused, by a file that says why. One that cannot be
    /// appended at the moment keeps the later ones of its query waiting, and the first such error
    /// is returned. Commits of different queries take turns, so that none waits for all of a long
    /// one: those that are there, and those that come meanwhile and ring.
    pub fn step(&self) -> Result<()> {
        let mut alone = self.alone.lock();
        let alone = &mut *alone;
        if !self.is_asked_for() {
            return Ok(());
        }
        let writer = &self.writer;
        let rung = || writer.home.page.read_word(Word::Pending);
        // Those of a query wait for one another, those of different queries do not.
        let mut waiting = HashSet::new();
        let (mut queries, mut listed) = (VecDeque::new(), None);
        let mut known = Known::default();
        let mut first = None;
        loop {
            // Looked at before the listing: what comes meanwhile is listed in the next round.
            let seen = rung();
            if listed != Some(seen) {
                queries = list(&writer.home, &queries, &mut waiting, &mut first)?;
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
                shutdown: &self.shutdown,
            };
            match take(writer, &mut pending, &mut alone.refused, turns) {
                Ok(Turn::Last) => {}
                Ok(Turn::More) => query.push_front(pending),
                Err(Error::Closed) => return Err(Error::Closed),
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
            let clock_ms = writer.home.machine.clock.now_ms();
            alone.due.sweep(&writer.home, clock_ms);
        }
        first.map_or(Ok(()), Err)
    }
}

impl Service for Intake {
    fn end(&self) {
        self.shutdown.begin();
        self.writer.home.page.ring(Word::Pending);
        // None is started any more.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Whether nothing can be appended any more.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Failed { .. } | Error::Closed)
}

/// The commits of one query, in their order.
type Query = VecDeque<Pending>;

/// Lists what is to be taken up, but for the queries that are `waiting`: one that cannot be listed
/// is one of them, and the error is the `first`. Queries that were listed `before` keep their turn,
/// the others follow by when their first commit was written.
fn list(
    home: &Home,
    before: &VecDeque<Query>,
    waiting: &mut HashSet<String>,
    first: &mut Option<Error>,
) -> Result<VecDeque<Query>> {
    let disk = &*home.machine.disk;
    let turns = before.iter().filter_map(VecDeque::front).enumerate();
    let turns: HashMap<_, _> = turns.map(|(turn, it)| (it.query.as_str(), turn)).collect();
    let mut queries: Vec<Query> = Vec::new();
    for (name, directory) in manifest::queries(disk, &home.root)? {
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
    writer: &Writer,
    pending: &mut Pending,
    refused: &mut HashMap<String, Refusal>,
    turns: Turns<'_>,
) -> Result<Turn> {
    let disk = writer.disk();
    let id = pending.manifest.as_ref().map(|it| it.id.clone());
    let refusal = id.as_ref().and_then(|id| refused.get(id)).cloned();
    let appended = match refusal {
        Some(refusal) => Err(Stop::Refuse(refusal)),
        None => take::append(writer, pending, turns),
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
    writer.home.page.ring(Word::Taken);
    Ok(Turn::Last)
}
