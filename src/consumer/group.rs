//! A group of consumers in this process: its members, and the queues that they share.

use super::claim::Claim;
use super::group_index::PRODUCERS;
use super::lane::{Identity, Lane};
use super::occupation::{Begun, Occupation};
use super::options::ConsumerOptions;
use super::patience::is_locked;
use super::progress::Progress;
use super::sharing::share;
use super::start::{Start, offset_of};
use super::wanted::Wanted;
use crate::bound::Bound;
use crate::clock::{Clock, Moment};
use crate::engine::{self, Engine, Topic};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::plant::{Point, pass};
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum length of a group's name in bytes, as in RocketMQ.
const GROUP_LEN_MAX: usize = 120;

/// A group of consumers.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Box<str>,
    /// The topic of its messages to be retried.
    pub(super) retry: Box<str>,
    pub(super) identity: Identity,
    /// The consumers of all processes, if the store is shared.
    occupation: Option<Arc<Occupation>>,
    state: Mutex<State>,
    /// Incremented when lanes change owners.
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    members: BTreeMap<u64, Member>,
    /// Lanes by topic and queue.
    lanes: BTreeMap<(Box<str>, u32), Arc<Lane>>,
}

/// The number of a member of a shared store before the table has given it one.
const JOINING: u64 = u64::MAX;

/// How a consumer joins while another process has the table of a shared store locked.
#[derive(Debug)]
pub(super) enum Joining<'a> {
    /// It is new and waits. Its caller holds no lock.
    First,
    /// Others have removed it. Its caller holds locks, so it fails at once; see
    /// [`Patience`](super::patience::Patience). What it has prepared is kept for the next attempt.
    Again(&'a mut Option<Prepared>),
}

/// The queues that a group begins with a consumer that joins a shared store.
pub(super) type Prepared = Vec<Begun>;

#[derive(Clone, Debug)]
struct Member {
    topics: Vec<Box<str>>,
    start: Start,
    wanted: Wanted,
}

/// The parts of a store that a group uses.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) progress: &'a Progress,
    pub(super) clock: &'a dyn Clock,
}

impl Group {
    /// A group without members, with the topic of its retries. `occupation`: where its consumers in
    /// all processes are listed.
    pub(super) fn new(name: &str, retry: &str, occupation: Option<Arc<Occupation>>) -> Group {
        Group {
            name: name.into(),
            retry: retry.into(),
            identity: Identity::default(),
            occupation,
            state: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Adds a member that reads `topics` and the group's retry topic. Returns its number: in a
    /// shared store, that of the table instead of `number`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if another member that reads one of the topics has other tags or
    /// another order; errors of reading, and those of the table of a shared store.
    pub(super) fn join(
        &self,
        ground: Ground<'_>,
        number: u64,
        topics: &[Box<str>],
        (options, joining): (&ConsumerOptions, Joining<'_>),
    ) -> Result<u64> {
        let member = Member {
            topics: topics.to_vec(),
            start: options.start.clone(),
            wanted: Wanted::new(topics, &options.filter, options.order),
        };
        if let Some(occupation) = &self.occupation {
            return self.join_shared(occupation, ground, member, (options, joining));
        }
        let mut state = self.state.lock();
        state.check_wanted(&member.wanted, &self.name)?;
        state.members.insert(number, member);
        let found = self.find_lanes(&mut state, ground);
        if found.is_err() {
            state.members.remove(&number);
        }
        self.share(&state, ground.clock.moment());
        found.map(|_| number)
    }

    /// Where many processes join at once, most of them wait for the table. Preparation runs once,
    /// before the wait; no lock is held while waiting.
    fn join_shared(
        &self,
        occupation: &Arc<Occupation>,
        ground: Ground<'_>,
        member: Member,
        (options, joining): (&ConsumerOptions, Joining<'_>),
    ) -> Result<u64> {
        let mut topics: BTreeSet<Box<str>> = member.topics.iter().cloned().collect();
        topics.insert(self.retry.clone());
        let session = i64::try_from(options.session_timeout.as_millis()).unwrap_or(i64::MAX);
        let session = u32::try_from(session).unwrap_or(u32::MAX);
        let now = ground.clock.now_ms();
        let enroll = |begun: &[Begun]| {
            let of = (session, Some(&member.wanted));
            occupation.join(&self.name, &topics, begun, of, now)
        };
        let prepare = || self.prepare(occupation, ground, &member);
        let number = match joining {
            Joining::First => {
                let begun = prepare()?;
                occupation.patiently(|| enroll(&begun))?
            }
            Joining::Again(kept) => {
                let begun = kept.take().map_or_else(prepare, Ok)?;
                match enroll(&begun) {
                    Err(error) if is_locked(&error) => {
                        *kept = Some(begun);
                        return Err(error);
                    }
                    joined => joined?,
                }
            }
        };
        interrupt::forbid(|| {
            let mut state = self.state.lock();
            state.members.insert(number, member);
            if let Err(error) = self.add_claims(occupation, &mut state, ground) {
                state.members.remove(&number);
                occupation.note_left(number);
                // If this fails, the next step of the peers removes the consumer.
                let _ = occupation.remove_left(now);
                return Err(error);
            }
            Ok(number)
        })
    }

    /// Finds the queues of a member that is about to join and that the group has not begun.
    fn prepare(
        &self,
        occupation: &Occupation,
        ground: Ground<'_>,
        member: &Member,
    ) -> Result<Prepared> {
        let prepared = interrupt::forbid(|| {
            let mut state = self.state.lock();
            // The key until the table gives the member a number.
            state.members.insert(JOINING, member.clone());
            let begun = self.find_begun(occupation, &state, ground);
            state.members.remove(&JOINING);
            begun
        });
        pass(Point::Prepared);
        prepared
    }

    /// Number of members, and of queues of `topics`, if `member` has none of these queues.
    pub(super) fn has_none(&self, member: u64, topics: &[Box<str>]) -> Option<(usize, usize)> {
        let state = self.state.lock();
        let lanes = state.lanes.values();
        let of_topics: Vec<_> = lanes.filter(|it| topics.contains(&it.topic.name)).collect();
        let has_one = of_topics
            .iter()
            .any(|lane| lane.claimed_by() == Some(member));
        let consumers = match &self.occupation {
            Some(occupation) => occupation.consumers(&self.name),
            None => state.members.len(),
        };
        (!has_one).then_some((consumers, of_topics.len()))
    }

    /// The consumers of all processes, if the store is shared.
    pub(super) fn occupation(&self) -> Option<&Occupation> {
        self.occupation.as_deref()
    }

    /// Removes a member. Its unsettled messages are due at once; in a shared store, after
    /// [`Occupation::remove_left`].
    pub(super) fn leave(&self, member: u64, now: Moment) {
        let mut state = self.state.lock();
        state.members.remove(&member);
        if let Some(occupation) = &self.occupation {
            occupation.note_left(member);
            return;
        }
        state
            .lanes
            .values()
            .for_each(|lane| lane.leave(member, now));
        self.share(&state, now);
    }

    /// Forgets a member that others have removed from the table of a shared store.
    pub(super) fn forget(&self, member: u64) {
        self.state.lock().members.remove(&member);
    }

    /// Finds queues that were added since the last call. Returns whether there are any.
    pub(super) fn refresh(&self, ground: Ground<'_>) -> Result<bool> {
        let mut state = self.state.lock();
        if let Some(occupation) = &self.occupation {
            let begun = self.find_begun(occupation, &state, ground)?;
            if !begun.is_empty() {
                occupation.begin(&self.name, &begun, ground.clock.now_ms())?;
            }
            return self.add_claims(occupation, &mut state, ground);
        }
        let has_more = self.find_lanes(&mut state, ground)?;
        if has_more {
            self.share(&state, ground.clock.moment());
        }
        Ok(has_more)
    }

    /// Changes when [`Group::lanes_of`] does.
    pub(super) fn generation(&self) -> u64 {
        let own = self.generation.load(Ordering::Acquire);
        match &self.occupation {
            Some(occupation) => own << 32 | u64::from(occupation.table().changes()),
            None => own,
        }
    }

    /// Whether a consumer is a member. Other processes may have removed it.
    pub(super) fn has(&self, member: u64) -> bool {
        let shared = self.occupation.as_ref();
        shared.is_none_or(|occupation| occupation.is_member(member))
    }

    /// Gives the lanes of this process to their heirs if their owners hold nothing.
    ///
    /// # Errors
    ///
    /// Those of the table of a shared store.
    pub(super) fn pass_on(&self, now: Moment) -> Result<()> {
        let lanes = self.lanes();
        lanes.iter().try_for_each(|lane| lane.pass_on(now))
    }

    /// The lanes that `member` owns or will own.
    pub(super) fn lanes_of(&self, member: u64) -> Vec<Arc<Lane>> {
        let mut lanes = self.lanes();
        lanes.retain(|lane| lane.claimed_by() == Some(member));
        lanes
    }

    /// Calls `visit` with all lanes, by topic and queue. `visit` must not use the group, which is
    /// locked.
    pub(super) fn each_lane(&self, visit: impl FnMut(&Lane)) {
        let state = self.state.lock();
        state.lanes.values().map(|lane| &**lane).for_each(visit);
    }

    /// All lanes, by topic and queue.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.state.lock().lanes.values().cloned().collect()
    }

    fn find_lanes(&self, state: &mut State, ground: Ground<'_>) -> Result<bool> {
        let known: BTreeSet<Box<str>> =
            state.lanes.keys().map(|(topic, _)| topic.clone()).collect();
        let mut is_new = false;
        for (topic, queue) in self.queues_of_members(state, ground) {
            let key = (topic.name.clone(), queue);
            if !state.lanes.contains_key(&key) {
                // A new queue of a topic that the group already reads is read from its
                // beginning.
                let start = match known.contains(&topic.name) {
                    true => Bound::Earliest,
                    false => state.start_of(&topic.name),
                };
                let begin = self.begin(ground, &topic, queue, &start)?;
                let lane = Lane::new(&self.identity, Arc::clone(&topic), queue, begin);
                let lane = self.cut(lane, ground, &topic)?;
                state.lanes.insert(key, Arc::new(lane));
                is_new = true;
            }
        }
        Ok(is_new)
    }

    /// Queues of the members' topics that the group has not begun, and where it begins them.
    fn find_begun(
        &self,
        occupation: &Occupation,
        state: &State,
        ground: Ground<'_>,
    ) -> Result<Vec<Begun>> {
        let mut begun = Vec::new();
        for (topic, queue) in self.queues_of_members(state, ground) {
            if occupation.find(&self.name, &topic.name, queue)?.is_some() {
                continue;
            }
            let start = match occupation.knows(&self.name, &topic.name)? {
                true => Bound::Earliest,
                false => state.start_of(&topic.name),
            };
            begun.push(Begun {
                topic: topic.name.clone(),
                queue,
                committed: self.begin(ground, &topic, queue, &start)?,
            });
        }
        Ok(begun)
    }

    /// Adds a lane for each queue of the members' topics that the table has. Returns whether there
    /// is a new one.
    fn add_claims(
        &self,
        occupation: &Arc<Occupation>,
        state: &mut State,
        ground: Ground<'_>,
    ) -> Result<bool> {
        let mut is_new = false;
        for (topic, queue) in self.queues_of_members(state, ground) {
            let key = (topic.name.clone(), queue);
            if state.lanes.contains_key(&key) {
                continue;
            }
            if let Some(row) = occupation.find(&self.name, &topic.name, queue)? {
                let claim = Claim::new(occupation, row);
                let lane = Lane::shared(&self.identity, Arc::clone(&topic), queue, claim);
                let lane = self.cut(lane, ground, &topic)?;
                state.lanes.insert(key, Arc::new(lane));
                is_new = true;
            }
        }
        if is_new {
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok(is_new)
    }

    /// The lane; it knows whether the log came back shorter than when the progress was saved.
    fn cut(&self, lane: Lane, ground: Ground<'_>, topic: &Topic) -> Result<Lane> {
        let Some(cut) = ground.progress.cut(&topic.name, &self.name) else {
            return Ok(lane);
        };
        let end = engine::Point::Position(cut);
        let end = ground.engine.offset_at(topic, lane.queue, end)?;
        Ok(lane.ending_at(end))
    }

    /// The queues of all topics that the members of this process read.
    fn queues_of_members(&self, state: &State, ground: Ground<'_>) -> Vec<(Arc<Topic>, u32)> {
        let names = state.members.values().flat_map(|member| &member.topics);
        let mut names: BTreeSet<Box<str>> = names.cloned().collect();
        names.insert(self.retry.clone());
        let topics = names
            .iter()
            .filter_map(|name| ground.engine.topics().get(name));
        let queues = topics.flat_map(|topic| {
            let queues = ground.engine.queues(&topic);
            queues
                .into_iter()
                .map(move |queue| (Arc::clone(&topic), queue))
        });
        queues.collect()
    }

    /// The offset at which the group begins in a queue: where it stopped, or else where its members
    /// ask to begin.
    fn begin(&self, ground: Ground<'_>, topic: &Topic, queue: u32, start: &Bound) -> Result<u64> {
        if let Some(offset) = ground.progress.get(&topic.name, &self.name, queue) {
            return Ok(offset);
        }
        // A group with progress in the topic had begun all queues that existed then, so this one is
        // newer.
        match ground.progress.knows(&topic.name, &self.name) {
            true => offset_of(&Bound::Earliest, ground.engine, topic, queue),
            false => offset_of(start, ground.engine, topic, queue),
        }
    }

    fn share(&self, state: &State, now: Moment) {
        let members: Vec<u64> = state.members.keys().copied().collect();
        let lanes = state.lanes.values();
        // The lanes of a topic are adjacent.
        let mut topics: Vec<&str> = Vec::new();
        let mut current = Vec::with_capacity(state.lanes.len());
        for lane in lanes.clone() {
            if topics.last() != Some(&&*lane.topic.name) {
                topics.push(&lane.topic.name);
            }
            current.push((lane.claimed_by(), topics.len() - 1));
        }
        let reads = |member: u64, topic: usize| {
            let topic = topics.get(topic).copied();
            let member = state.members.get(&member);
            topic == Some(&*self.retry)
                || member.is_some_and(|it| it.topics.iter().any(|name| Some(&**name) == topic))
        };
        let owners = share(&current, &members, reads);
        for (lane, owner) in lanes.zip(owners) {
            lane.give_to(owner, now);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl State {
    /// Checks that the members of `group` that read its topics want the same messages of them.
    fn check_wanted(&self, wanted: &Wanted, group: &str) -> Result<()> {
        for member in self.members.values() {
            let mut topics = wanted.topics().iter();
            if let Some(topic) = topics.find(|topic| member.topics.contains(topic)) {
                wanted.check(member.wanted.word(), group, topic)?;
            }
        }
        Ok(())
    }

    /// Where the first member that reads a topic asks to begin. A retry topic is always read from
    /// its beginning.
    fn start_of(&self, topic: &str) -> Bound {
        let mut members = self.members.values();
        let reader = members.find(|member| member.topics.iter().any(|name| **name == *topic));
        reader.map_or(Bound::Earliest, |member| member.start.of(topic).clone())
    }
}

/// Checks the name of a group.
///
/// # Errors
///
/// [`Error::InvalidOption`].
pub(super) fn check_name(engine: &dyn Engine, group: &str) -> Result<()> {
    let meanings = engine.meanings();
    // The names of its topics end with its name.
    let retry = meanings.retry_topic(group);
    let is_legal = meanings.check_topic(&retry).is_ok();
    if group == PRODUCERS {
        let reason = "is the name under which a shared store lists producers that own queues";
        return Err(Error::option("group", format!("{group:?}"), reason));
    }
    if group.is_empty() || group.len() > GROUP_LEN_MAX || !is_legal {
        let signs = match meanings.check_topic(".") {
            Err(_) if meanings.check_topic("a.b").is_err() => "%, |, - and _",
            _ => "., - and _",
        };
        let rule = format!("be 1 to {GROUP_LEN_MAX} characters of a-z, A-Z, 0-9, {signs}");
        return Err(Error::must("group", format!("{group:?}"), rule));
    }
    Ok(())
}
