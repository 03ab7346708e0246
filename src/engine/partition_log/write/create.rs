//! Creates the partitions of topics.

use super::ends::{End, Ends};
use super::files;
use super::open::{Add, Writer};
use super::parts::Parts;
use super::writing::Start;
use crate::engine::topic::initial_queues;
use crate::engine::{Topic, Topics};
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// If a topic lacks more queues than this, and more than [`LACKING_RATIO`] times as many as it has,
/// they are made only if a call asks for them: one folder with a high number must not become
/// thousands.
const LACKING_MAX: usize = 1024;
/// See [`LACKING_MAX`].
const LACKING_RATIO: usize = 16;

impl Writer {
    /// Creates the partitions of a topic that do not exist yet. Their folders become durable with
    /// the first messages in them, or by [`Parts::sync_folders`]. `add` is called with each.
    pub fn create(
        &self,
        topics: &Topics,
        name: &str,
        queues: Option<u32>,
        mut add: impl FnMut(&Arc<Topic>, u32, Arc<Ends>),
    ) -> Result<Arc<Topic>> {
        let parts = &self.parts;
        if parts.lacks() {
            self.adopt(topics, &mut add)?;
        }
        if let Some(topic) = topics.get(name)
            && topic.write_queues() >= queues.unwrap_or_default()
            && !self.is_incomplete(name)
        {
            return Ok(topic);
        }
        if let Some(shared) = &parts.shared {
            // No lock is held: while this waits for another process, a signal handler may create a
            // topic.
            self.make_shared(shared, name, queues)?;
            self.complete(&mut self.incomplete.lock(), name);
            self.adopt(topics, &mut add)?;
            let topic = topics.get(name);
            return topic.ok_or_else(|| Error::closed(&parts.root));
        }
        let mut incomplete = self.incomplete.lock();
        parts.check_open()?;
        let known = topics.get(name);
        let first = known.as_ref().map_or(0, |topic| topic.write_queues());
        let (queues, missing) = self.planned(name, first, queues)?;
        let topic = self.make(topics, (name, queues), &missing, &mut add)?;
        self.complete(&mut incomplete, name);
        Ok(topic)
    }

    /// The number of queues that a topic with `first` queues gets, and which of these it lacks.
    /// `queues`: how many the call asks for; `None`: as many as there are, or in a new topic the
    /// default number.
    ///
    /// # Errors
    ///
    /// Those of [`missing`].
    pub(super) fn planned(
        &self,
        name: &str,
        first: u32,
        queues: Option<u32>,
    ) -> Result<(u32, Vec<u32>)> {
        let parts = &self.parts;
        let asked = queues.unwrap_or_default();
        let initial = || initial_queues(name, parts.rules.default_queues);
        let queues = match (queues, first) {
            (None, 1..) => first,
            (queues, _) => queues.unwrap_or_else(initial).max(first),
        };
        let queues = parts.gone.queues_of(name, queues);
        Ok((queues, missing(parts, (name, queues), asked)?))
    }

    /// Notes that a topic has all of its partitions.
    pub(super) fn complete(&self, incomplete: &mut HashSet<String>, name: &str) {
        if incomplete.remove(name) {
            let left = !incomplete.is_empty();
            self.has_incomplete.store(left, Ordering::Release);
        }
    }

    /// Creates missing partitions of a topic, which then has `queues` queues.
    fn make(
        &self,
        topics: &Topics,
        (name, queues): (&str, u32),
        numbers: &[u32],
        add: &mut Add<'_>,
    ) -> Result<Arc<Topic>> {
        let parts = &self.parts;
        let folder = |queue: u32| parts.root.join(format!("{name}-{queue}"));
        let id: Arc<str> = match topics.get(name) {
            None => files::topic_id(name, parts.seed).into(),
            Some(_) => files::id_of(&*parts.disk, &folder(0), name, parts.seed)?.into(),
        };
        // The last partition first: its number tells a later opening how many there must be, if
        // this process dies. Most file systems keep the order of names even if the power fails.
        for queue in numbers.iter().rev() {
            // An earlier call may have made some of them.
            if parts.disk.stat(&folder(*queue))?.is_none() {
                parts.disk.create_directory(&folder(*queue))?;
            }
        }
        Ok(topics.get_or_fill(name, queues, |topic| {
            for queue in numbers.iter().copied() {
                let sync = parts.rules.sync;
                let begin = parts.gone.begin_of(name, queue);
                let end = End::without_segments(begin);
                let ends = Arc::new(Ends::new(folder(queue), sync, Vec::new(), (begin, end)));
                ends.know_snapshot(None);
                let start = Start {
                    end,
                    continues: false,
                    id: Some(Arc::clone(&id)),
                };
                parts.add(topic, queue, &ends, start);
                add(topic, queue, ends);
            }
        }))
    }

    pub(super) fn is_incomplete(&self, name: &str) -> bool {
        self.has_incomplete.load(Ordering::Acquire) && self.incomplete.lock().contains(name)
    }
}

/// The queues below `queues` that a topic lacks. The call asks for those below `asked`. A process
/// that died while it made the topic has left only the last ones.
///
/// # Errors
///
/// [`Error::Unsupported`] if there are too many that the call does not ask for.
fn missing(parts: &Parts, (name, queues): (&str, u32), asked: u32) -> Result<Vec<u32>> {
    let missing: Vec<u32> = (0..queues).filter(|it| !parts.has(name, *it)).collect();
    let unasked = missing.len() - missing.partition_point(|it| *it < asked);
    let there = parts.count_of(name);
    if there == 0 || unasked <= LACKING_MAX.max(there.saturating_mul(LACKING_RATIO)) {
        return Ok(missing);
    }
    let what = format!(
        "sending to {name}: it has {there} of {queues} queues, as if most of them were lost; \
         create_topic with {queues} queues makes the others"
    );
    Err(Error::Unsupported { what })
}
