//! A group of consumers in this process: its members, and the queues that they share.

use super::lane::{Lane, Order};
use super::progress::Progress;
use super::retry::retry_topic;
use super::sharing::share;
use super::start::{Start, offset_of};
use crate::bound::Bound;
use crate::engine::{Engine, Filter, Topic};
use crate::error::Result;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Options of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Where a group begins in a topic of which it has consumed nothing.
    pub start: Start,
    /// What is guaranteed about the order of messages in a queue.
    pub order: Order,
    /// Which messages are delivered. Others count as settled.
    pub filter: Filter,
    /// How long a message may stay unsettled before it is delivered again.
    pub visibility_timeout: Duration,
    /// Maximum number of offsets delivered past the smallest one that is not settled.
    pub max_unsettled: u64,
    /// With [`Order::Queue`]: number of attempts before a message becomes a dead letter.
    pub retry_in_place: u32,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions {
            start: Start::default(),
            order: Order::None,
            filter: Filter::default(),
            visibility_timeout: Duration::from_mins(15),
            max_unsettled: 2_000,
            retry_in_place: 16,
        }
    }
}

/// A group of consumers.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Box<str>,
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

#[derive(Debug)]
struct Member {
    topics: Vec<Box<str>>,
    start: Start,
}

/// The parts of a store that a group uses.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) progress: &'a Progress,
    pub(super) now: i64,
}

impl Group {
    pub(super) fn new(name: &str) -> Group {
        Group {
            name: name.into(),
            state: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Adds a member that reads `topics` and the group's retry topic.
    pub(super) fn join(
        &self,
        ground: Ground<'_>,
        member: u64,
        topics: &[Box<str>],
        start: &Start,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let topics = topics.to_vec();
        let start = start.clone();
        state.members.insert(member, Member { topics, start });
        let found = self.find_lanes(&mut state, ground);
        if found.is_err() {
            state.members.remove(&member);
        }
        self.share(&state, ground.now);
        found.map(drop)
    }

    /// Number of members, and of queues of `topics`, if `member` has none of these queues.
    pub(super) fn has_none(&self, member: u64, topics: &[Box<str>]) -> Option<(usize, usize)> {
        let state = self.state.lock();
        let lanes = state.lanes.values();
        let of_topics: Vec<_> = lanes.filter(|it| topics.contains(&it.topic.name)).collect();
        let has_one = of_topics
            .iter()
            .any(|lane| lane.claimed_by() == Some(member));
        (!has_one).then_some((state.members.len(), of_topics.len()))
    }

    /// Removes a member. Its unsettled messages are due at once.
    pub(super) fn leave(&self, member: u64, now: i64) {
        let mut state = self.state.lock();
        state.members.remove(&member);
        state
            .lanes
            .values()
            .for_each(|lane| lane.leave(member, now));
        self.share(&state, now);
    }

    /// Finds queues that were added since the last call. Returns whether there are any.
    pub(super) fn refresh(&self, ground: Ground<'_>) -> Result<bool> {
        let mut state = self.state.lock();
        let has_more = self.find_lanes(&mut state, ground)?;
        if has_more {
            self.share(&state, ground.now);
        }
        Ok(has_more)
    }

    /// Incremented when [`Group::lanes_of`] changes.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The lanes that `member` owns or will own.
    pub(super) fn lanes_of(&self, member: u64) -> Vec<Arc<Lane>> {
        let mut lanes = self.lanes();
        lanes.retain(|lane| lane.claimed_by() == Some(member));
        lanes
    }

    /// All lanes, by topic and queue.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.state.lock().lanes.values().cloned().collect()
    }

    fn find_lanes(&self, state: &mut State, ground: Ground<'_>) -> Result<bool> {
        let retry = retry_topic(&self.name);
        let names = state.members.values().flat_map(|member| &member.topics);
        let mut names: BTreeSet<Box<str>> = names.cloned().collect();
        names.insert(retry.into());
        let mut is_new = false;
        for name in names {
            let Some(topic) = ground.engine.topics().get(&name) else {
                continue;
            };
            let known = state.lanes.keys().any(|(other, _)| *other == name);
            for queue in ground.engine.queues(&topic) {
                let key = (name.clone(), queue);
                if !state.lanes.contains_key(&key) {
                    // A new queue of a topic that the group already reads is read from its
                    // beginning.
                    let start = match known {
                        true => Bound::Earliest,
                        false => state.start_of(&name),
                    };
                    let begin = self.begin(ground, &topic, queue, &start)?;
                    let lane = Lane::new(Arc::clone(&topic), queue, begin);
                    state.lanes.insert(key, Arc::new(lane));
                    is_new = true;
                }
            }
        }
        Ok(is_new)
    }

    /// Where the group begins in a queue: where it stopped, or else where its members ask to begin.
    fn begin(&self, ground: Ground<'_>, topic: &Topic, queue: u32, start: &Bound) -> Result<u64> {
        if let Some(offset) = ground.progress.get(&topic.name, &self.name, queue) {
            return Ok(offset);
        }
        // If the group has progress in the topic, it knew all queues that existed then.
        match ground.progress.knows(&topic.name, &self.name) {
            true => offset_of(&Bound::Earliest, ground.engine, topic, queue),
            false => offset_of(start, ground.engine, topic, queue),
        }
    }

    fn share(&self, state: &State, now: i64) {
        let members: Vec<u64> = state.members.keys().copied().collect();
        let lanes: Vec<&Arc<Lane>> = state.lanes.values().collect();
        let retry = retry_topic(&self.name);
        let takes = |member: u64, lane: usize| {
            let topic = lanes.get(lane).map(|lane| &*lane.topic.name);
            let member = state.members.get(&member);
            topic == Some(&retry)
                || member.is_some_and(|it| it.topics.iter().any(|name| Some(&**name) == topic))
        };
        let current: Vec<Option<u64>> = lanes.iter().map(|lane| lane.claimed_by()).collect();
        let owners = share(&current, &members, takes);
        for (lane, owner) in lanes.iter().zip(owners) {
            lane.give_to(owner, now);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl State {
    /// Where the first member that reads a topic asks to begin. A retry topic is always read from
    /// its beginning.
    fn start_of(&self, topic: &str) -> Bound {
        let mut members = self.members.values();
        let reader = members.find(|member| member.topics.iter().any(|name| **name == *topic));
        reader.map_or(Bound::Earliest, |member| member.start.of(topic).clone())
    }
}
