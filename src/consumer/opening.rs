//! How a consumer is opened: it needs its group, and in a shared store the table of groups.

use super::group::{self, Group};
use super::member::Consumer;
use super::occupation::Occupation;
use super::options::ConsumerOptions;
use super::start::{Start, check_named};
use super::{Anchor, Consumers, SAVE_EACH_MS};
use crate::error::{At, Error, Op, Result};
use crate::table::subscriptions::{self, Subscription};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Anchor {
    /// A consumer of `topics` in `group`. Missing topics are created with the default number of
    /// queues.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::InvalidTopic`]; [`Error::ReadOnly`] if the store is not
    /// open for writing; [`Error::Corrupt`] if the table of offsets cannot be read; errors of
    /// reading.
    pub fn consumer(
        self: &Arc<Anchor>,
        topics: &[&str],
        group: &str,
        options: ConsumerOptions,
    ) -> Result<Consumer> {
        let engine = self.handle.writer()?;
        group::check_name(engine, group)?;
        options.check()?;
        if topics.is_empty() {
            return Err(Error::must("topics", "[]", "name at least one topic"));
        }
        let mut distinct = BTreeSet::new();
        let topics = topics.iter().copied();
        let topics: Vec<&str> = topics.filter(|topic| distinct.insert(*topic)).collect();
        for topic in &topics {
            engine.meanings().check_topic(topic)?;
            engine.topic_for_append(topic)?;
        }
        if let Start::ByTopic(bounds) = &options.start {
            check_named("start", bounds, &topics, engine)?;
        }
        let subscription = self.subscription(group, &topics)?;
        let occupation = self.occupation()?;
        if occupation.is_some() {
            // Other processes write the table of offsets too.
            self.progress()?.reload(self.log()?)?;
        }
        let group = {
            let mut groups = self.groups.lock();
            let found = groups.entry(group.into());
            let retry = engine.meanings().retry_topic(group);
            let new = || Arc::new(Group::new(group, &retry, occupation.clone()));
            Arc::clone(found.or_insert_with(new))
        };
        let consumer = Consumer::join(self, group, &topics, options, subscription)?;
        match &occupation {
            // The process that leads saves progress from now on.
            Some(occupation) => {
                let started = self.peers.start(&self.loan, occupation);
                started.at(Op::StartThreads, &self.handle.path)?;
                self.service_wake();
            }
            None => {
                // The offset where the group begins is saved with its progress, so that it is
                // chosen only once.
                let at = self.steady() + SAVE_EACH_MS;
                self.save_at.fetch_min(at, Ordering::AcqRel);
                self.start()?;
            }
        }
        Ok(consumer)
    }
}

impl Consumers {
    /// The consumers of all processes; `None` if the store is not shared.
    pub(super) fn occupation(&self) -> Result<Option<Arc<Occupation>>> {
        if let Some(found) = self.occupation.get() {
            return Ok(Some(Arc::clone(found)));
        }
        let Some(joint) = self.handle.joint() else {
            return Ok(None);
        };
        let new = Arc::new(Occupation::new(joint.table()?));
        new.patiently(|| {
            let _beginning = self.beginning.lock();
            if self.occupation.get().is_none() {
                // A process that is gone may have had the slot of this one.
                new.evict(new.table().own_slot(), self.now())?;
                new.table().show_beat();
                let _ = self.occupation.set(Arc::clone(&new));
            }
            Ok(())
        })?;
        Ok(self.occupation.get().cloned())
    }

    /// [`Consumers::occupation`], if some process has created the table.
    pub(super) fn found_occupation(&self) -> Result<Option<Arc<Occupation>>> {
        let joint = self.handle.joint();
        match joint.map(|joint| joint.found_table()).transpose()? {
            Some(Some(_)) => self.occupation(),
            _ => Ok(None),
        }
    }

    /// The switches of a group that may consume these topics.
    fn subscription(&self, group: &str, topics: &[&str]) -> Result<Subscription> {
        let subscription = match &self.place {
            Some(place) => {
                let path = place.config(subscriptions::FILE_NAME);
                subscriptions::load(&*place.disk, &path, group)?
            }
            None => Subscription::default(),
        };
        let place = self.place.as_ref();
        let file = || place.map_or_else(String::new, |it| it.shown(subscriptions::FILE_NAME));
        if !subscription.consume_enable {
            let reason = format!(
                "the group may not consume: consumeEnable is false in {}",
                file()
            );
            return Err(Error::option("group", format!("{group:?}"), reason));
        }
        let mut topics = topics.iter();
        if let Some(topic) = topics.find(|it| subscription.forbidden.contains(**it)) {
            let file = file();
            let reason = format!("group {group:?} may not read it: forbiddenTable in {file}");
            return Err(Error::option("topics", format!("{topic:?}"), reason));
        }
        Ok(subscription)
    }
}
