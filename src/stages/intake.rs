//! Intake: appends what other processes have staged and committed, each commit exactly once.
//!
//! Rows come from tasks in processes that do not write the log. Each task stages its rows in its
//! own file. A driver commits with a manifest, which names the files of the tasks that count. The
//! process that writes the log takes manifests up:
//!
//! ```text
//!   forebay.stages/<query>/stage-*            rows, as records          by tasks
//!                         /commit-<batch>     the manifest: pending     by the driver
//!                         /taken-<batch>      the manifest: begun       by the writer
//!                         /refused-<batch>    why it can never be appended
//!
//!   read the markers --> rename commit to taken --> each part one atomic batch, its marker last
//!   --> flush --> unlink the stages --> unlink the manifest --> wake the waiting driver
//! ```
//!
//! The *markers* decide what is in the log: each part is an atomic batch, and its last row is a
//! marker. Parts up to the last marker of a query are skipped, so a crash between any two steps
//! neither loses rows nor appends them twice. The names of the files only list the pending work.
//!
//! The name tells a commit that has begun (`taken`) from one that may still be withdrawn
//! (`commit`). Beginning and withdrawing both rename the same file, so one of them fails. If there
//! is no room before the first part is in the log, the commit gets the name `commit` back, unless
//! another commit has taken that name meanwhile. Commits of different queries take turns of a few
//! parts each. A lone commit continues until another comes.

use super::pending::{self, Pending, Refusal};
use super::place::StagePlace;
use super::staged::Checked;
use super::stop::Stop;
use super::take::{self, Known, Turn, Turns};
use super::writer::Writer;
use super::{marker, sweep};
use crate::disk::Disk;
use crate::engine::directory::page::Word;
use crate::engine::service::hold::Kept;
use crate::engine::service::shutdown::Shutdown;
use crate::error::{Awaited, Error, Result};
use crate::handle::Service;
use crate::sync::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Pause before retrying after a lack of room or a busy log.
const RETRY: Duration = Duration::from_millis(500);

/// How long a process waits for another one that takes commits up, and how often it checks.
const ELSEWHERE_TIMEOUT: Duration = Duration::from_secs(30);
const CHECK: Duration = Duration::from_millis(50);

/// State of the thread that takes up manifests.
#[derive(Debug, Default)]
struct Alone {
    due: sweep::Due,
    /// How much of the staged rows was checked, by id of the commit, so that a commit that waits
    /// for room or for its turn is not checked again each time.
    checked: HashMap<String, Checked>,
    /// Refusals by id of the commit. A permanent failure may seem to be gone on a retry: a sync can
    /// succeed then.
    refused: HashMap<String, Refusal>,
    /// The offset from which retention keeps markers, in a partition log.
    kept_from: u64,
}

/// Takes up the commits for a store.
pub struct Intake {
    writer: Writer,
    shutdown: Shutdown,
    /// Held while a manifest is taken up or a marker is kept.
    alone: Mutex<Alone>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Intake {
    /// The intake of a store that is open for writing. No thread runs yet.
    pub fn new(writer: Writer) -> Intake {
        Intake {
            writer,
            shutdown: Shutdown::default(),
            alone: Mutex::default(),
            thread: Mutex::default(),
        }
    }

    /// Starts the thread, if rows were ever staged and no thread runs.
    pub fn start(self: &Arc<Intake>) {
        let mut thread = self.thread.lock();
        // If this fails, the step reports the error.
        if thread.is_some() || self.shutdown.has_begun() || !self.is_asked_for().unwrap_or(true) {
            return;
        }
        let own = Arc::clone(self);
        let named = Builder::new().name("forebay-intake".to_owned());
        // If the thread cannot be started, the next check tries again.
        *thread = named.spawn(move || own.run()).ok();
    }

    /// Whether the thread was started.
    #[cfg(test)]
    pub(crate) fn has_thread(&self) -> bool {
        self.thread.lock().is_some()
    }

    fn run(&self) {
        let words = &self.writer.words;
        let rest = self.writer.place.rest();
        while !self.shutdown.has_begun() {
            // Read before the work, so that a commit that arrives meanwhile ends the sleep at once.
            let seen = words.read(Word::Pending);
            let pause = match self.step() {
                Ok(()) => rest,
                Err(error) if is_final(&error) => return,
                Err(_) => RETRY,
            };
            if !self.shutdown.has_begun() {
                words.sleep_on(Word::Pending, seen, pause);
            }
        }
    }

    /// Waits until the process that leads has taken up all pending commits, which are then durable.
    /// Takes them up itself once this process `leads`.
    ///
    /// # Errors
    ///
    /// As [`Intake::step`]; [`Error::Busy`] if commits are still pending after the timeout.
    pub fn step_elsewhere(&self, leads: &dyn Fn() -> bool) -> Result<()> {
        let (words, began) = (&self.writer.words, Instant::now());
        while self.is_asked_for()? {
            let seen = words.read(Word::Taken);
            let (mut waiting, mut failed) = (HashSet::new(), None);
            let pending = self.list(&VecDeque::new(), &mut waiting, &mut failed)?;
            match failed {
                Some(error) => return Err(error),
                None if pending.is_empty() => return Ok(()),
                None if leads() => return self.step(),
                None if self.shutdown.has_begun() => return Err(Error::Closed { path: None }),
                None => {}
            }
            if began.elapsed() > ELSEWHERE_TIMEOUT {
                let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Busy {
                    what: Awaited::Commits,
                    waited_ms,
                });
            }
            words.notify(Word::Pending);
            words.sleep_on(Word::Taken, seen, CHECK);
        }
        Ok(())
    }

    /// Whether rows were ever staged.
    fn is_asked_for(&self) -> Result<bool> {
        let Writer { place, words, .. } = &self.writer;
        let disk = self.writer.disk();
        // Without the words, commits are found too, but later.
        let _ = words.find(disk, place);
        place.is_used(disk)
    }

    /// [`list`] of this store.
    fn list(
        &self,
        before: &VecDeque<Query>,
        waiting: &mut HashSet<String>,
        first: &mut Option<Error>,
    ) -> Result<VecDeque<Query>> {
        let disk = self.writer.disk();
        list(disk, &self.writer.place, before, (waiting, first))
    }

    /// Durably appends again the last markers of commits that would be deleted with the log below
    /// `until`. Returns false while a manifest is taken up: then nothing may be deleted.
    pub fn keep_markers(&self, until: u64) -> Result<bool> {
        let Some(_alone) = self.alone.try_lock() else {
            return Ok(false);
        };
        marker::keep(&self.writer, until)?;
        Ok(true)
    }

    /// The offset from which retention must keep markers. `None` while a manifest is taken up.
    ///
    /// # Errors
    ///
    /// Errors of reading, and of appending markers again.
    pub fn kept_markers(&self) -> Result<Option<Kept>> {
        let Some(mut alone) = self.alone.try_lock() else {
            return Ok(None);
        };
        alone.kept_from = marker::keep_from(&self.writer, alone.kept_from)?;
        let marks = (marker::TOPIC.into(), marker::QUEUE);
        Ok(Some(Kept::from([(marks, alone.kept_from)])))
    }

    /// Takes up all pending commits. They are durable on return.
    ///
    /// A commit that can never be appended is refused, by a file with the reason. A commit that
    /// cannot be appended at the moment makes later ones of its query wait, and the first such
    /// error is returned. Commits of different queries take turns, including those that arrive
    /// meanwhile, so that no commit waits for all of a long one.
    pub fn step(&self) -> Result<()> {
        let mut alone = self.alone.lock();
        let alone = &mut *alone;
        if !self.is_asked_for()? {
            return Ok(());
        }
        let writer = &self.writer;
        let notified = || writer.words.read(Word::Pending);
        // Commits of one query wait for each other, those of different queries do not.
        let mut waiting = HashSet::new();
        let (mut queries, mut listed) = (VecDeque::new(), None);
        let mut known = Known::default();
        let mut first = None;
        loop {
            // Read before the listing, so that a commit that arrives meanwhile is listed in the
            // next round.
            let seen = notified();
            if listed != Some(seen) {
                queries = self.list(&queries, &mut waiting, &mut first)?;
                listed = Some(seen);
            }
            let Some(mut query): Option<Query> = queries.pop_front() else {
                break;
            };
            let Some(mut pending) = query.pop_front() else {
                continue;
            };
            let others = || !queries.is_empty() || notified() != seen;
            let turns = Turns {
                checked: &mut alone.checked,
                known: &mut known,
                others: &others,
                shutdown: &self.shutdown,
            };
            match take(writer, &mut pending, &mut alone.refused, turns) {
                Ok(Turn::Last) => {}
                Ok(Turn::More) => query.push_front(pending),
                Err(closed @ Error::Closed { .. }) => return Err(closed),
                Err(error) => {
                    waiting.insert(pending.place.query);
                    first.get_or_insert(error);
                    continue;
                }
            }
            if !query.is_empty() {
                queries.push_back(query);
            }
        }
        if first.is_none() {
            // No query has to wait.
            alone.checked.clear();
            alone.refused.clear();
            let clock_ms = writer.machine.clock.now_ms();
            alone.due.sweep(writer.disk(), &writer.place, clock_ms);
        }
        first.map_or(Ok(()), Err)
    }
}

impl Service for Intake {
    fn end(&self) {
        self.shutdown.begin();
        self.writer.words.notify(Word::Pending);
        // No other thread is started after this.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Whether nothing can be appended any more.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Failed { .. } | Error::Closed { .. })
}

/// The commits of one query, in order.
type Query = VecDeque<Pending>;

/// Lists the commits to take up, except those of queries in `waiting`. A query that cannot be
/// listed is added to them, and its error becomes the `first` one. Queries in `before` keep their
/// turn; others follow in the order in which their first commits were written.
fn list(
    disk: &dyn Disk,
    stages: &StagePlace,
    before: &VecDeque<Query>,
    (waiting, first): (&mut HashSet<String>, &mut Option<Error>),
) -> Result<VecDeque<Query>> {
    let turns = before.iter().filter_map(VecDeque::front).enumerate();
    let turns: HashMap<_, _> = turns
        .map(|(turn, it)| (it.place.query.as_str(), turn))
        .collect();
    let mut queries: Vec<Query> = Vec::new();
    for place in stages.queries(disk)? {
        if waiting.contains(&place.query) {
            continue;
        }
        match pending::of_query(disk, &place) {
            Ok(found) if found.is_empty() => {}
            Ok(found) => queries.push(found.into()),
            Err(error) => {
                waiting.insert(place.query);
                first.get_or_insert(error);
            }
        }
    }
    queries.sort_by_key(|query| {
        let front = query.front();
        let turn = front.and_then(|it| turns.get(it.place.query.as_str()));
        let manifest = front.and_then(|it| it.manifest.as_ref());
        let written_ms = manifest.map_or(0, |manifest| manifest.created_ms);
        (turn.copied().unwrap_or(usize::MAX), written_ms)
    });
    Ok(queries.into())
}

/// Takes up one manifest for a turn, or refuses it. `refused` keeps a refusal until it is written.
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
            // It may have been withdrawn meanwhile, and another commit may have its name. So only a
            // begun commit is refused.
            if pending.is_begun() || pending.begin(disk)? {
                pending.refuse(disk, &refusal)?;
            }
        }
        Err(Stop::Later(error)) => return Err(error),
    }
    writer.words.notify(Word::Taken);
    Ok(Turn::Last)
}
