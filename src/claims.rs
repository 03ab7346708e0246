//! Queues that named producers own.
//!
//! A producer that asks for a queue of its own gets one that no other such producer of the topic
//! holds. Under the same name it gets the same queue again, even after a restart, so the messages
//! of a name stay in one queue in the order in which they were sent. Of two producers with one name
//! the newer one owns the queue. `forebay.producers` lists which name had which queue last:
//!
//! ```text
//! {"orders":{"0":{"name":"p1","since":1795216143335}}}
//! ```
//!
//! If every queue of the topic has had an owner, a new name gets the queue without a living owner
//! whose last owner began first.
//!
//! In a shared store the owners are in several processes. An [`Arbiter`] then knows which queues
//! have living owners, and each claim has a [`Grant`], which ends when another producer gets the
//! queue. The table is read and written under the arbiter's lock.

use crate::disk::{Disk, replace};
use crate::engine::Topic;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::table::{Loaded, Reason, TABLE_LEN_MAX, json, load};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Maximum length of a producer's name, in bytes.
const NAME_LEN_MAX: usize = 255;

/// Decides which queues have owners, in all processes that share a store.
pub trait Arbiter: Send + Sync {
    /// Calls `decide` while no other process or thread decides about an owner. May wait for other
    /// processes before, so the caller holds no lock.
    ///
    /// # Errors
    ///
    /// Those of `decide`, and of the table that the processes share.
    fn decide(&self, decide: &mut dyn FnMut(&dyn Ruling) -> Result<()>) -> Result<()>;
}

/// The owners while they do not change.
pub trait Ruling {
    /// Whether a living process has a producer that owns a queue.
    fn is_owned(&self, topic: &str, queue: u32) -> bool;

    /// Gives a queue to a producer of this process, since `now`. An earlier owner loses it.
    ///
    /// # Errors
    ///
    /// Those of the table that the processes share.
    fn grant(&self, topic: &str, queue: u32, now: i64) -> Result<Box<dyn Grant>>;
}

/// A queue that was given to a producer. The queue is free when the grant is dropped.
pub trait Grant: Send + Sync + Debug {
    /// Whether the producer still owns it.
    fn is_valid(&self) -> bool;

    /// Lets another producer have the queue: at once, or if the owners are being changed by another
    /// process, as soon as that is over. Does not wait.
    fn end(&self);
}

/// The queue of a producer. The queue is free when the claim is dropped or given up.
#[derive(Debug)]
pub struct Claim {
    topic: Box<str>,
    name: Box<str>,
    queue: u32,
    is_lost: AtomicBool,
    /// In a shared store.
    grant: OnceLock<Box<dyn Grant>>,
}

impl Claim {
    /// The queue.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The name of its producer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the queue up. Another producer may own it afterwards.
    pub fn give_up(&self) {
        self.is_lost.store(true, Ordering::Release);
        if let Some(grant) = self.grant.get() {
            grant.end();
        }
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
            || self.grant.get().is_some_and(|grant| !grant.is_valid())
    }

    /// Checks that the producer still owns the queue, and that `queue`, if given, is that one.
    ///
    /// # Errors
    ///
    /// [`Error::Replaced`], [`Error::InvalidOption`].
    pub fn check(&self, queue: Option<u32>) -> Result<()> {
        if self.is_lost() {
            return Err(Error::Replaced {
                topic: self.topic.to_string(),
                queue: self.queue,
                name: self.name.to_string(),
            });
        }
        match queue {
            Some(queue) if queue != self.queue => {
                let (name, own) = (&self.name, self.queue);
                let reason = format!("producer {name:?} sends to queue {own}, which it owns");
                Err(Error::option("queue", queue, reason))
            }
            _ => Ok(()),
        }
    }
}

/// The last owner of a queue.
#[derive(Debug)]
struct Owner {
    name: Box<str>,
    /// When it began, in ms.
    since: i64,
    /// Its claim, if it is a producer of this process.
    claim: Weak<Claim>,
}

impl Owner {
    fn claim(&self) -> Option<Arc<Claim>> {
        let claim = self.claim.upgrade();
        claim.filter(|claim| !claim.is_lost())
    }
}

/// Owners by topic and queue.
type Owners = BTreeMap<Box<str>, BTreeMap<u32, Owner>>;

/// The owners of queues in a store.
pub struct Claims {
    /// Disk and path of the table; `None` if the store has no files.
    place: Option<(Arc<dyn Disk>, PathBuf)>,
    /// `None` before the table is read.
    owners: Mutex<Option<Owners>>,
}

impl Claims {
    /// The owners in the table at this place. Reads it with the first claim.
    pub fn new(place: Option<(Arc<dyn Disk>, PathBuf)>) -> Claims {
        Claims {
            place,
            owners: Mutex::new(None),
        }
    }

    /// A queue of `topic` for the producer `name`; the table is durable on return. An earlier
    /// producer of this name loses the queue.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the name is empty or too long, or every queue has an owner;
    /// [`Error::Corrupt`] if the table cannot be read; [`Error::Io`]; in a shared store those of
    /// its `arbiter`.
    pub fn claim(
        &self,
        topic: &Topic,
        name: &str,
        now: i64,
        arbiter: Option<&dyn Arbiter>,
    ) -> Result<Arc<Claim>> {
        if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains(char::is_control) {
            let rule = format!("have 1 to {NAME_LEN_MAX} bytes and no control characters");
            return Err(Error::must("name", format!("{name:?}"), rule));
        }
        let Some(arbiter) = arbiter else {
            return self.claim_by(&mut self.owners.lock(), topic, (name, now), None);
        };
        let mut claimed = None;
        arbiter.decide(&mut |ruling| {
            let mut owners = self.owners.lock();
            // Another process may have written the table.
            *owners = None;
            claimed = Some(self.claim_by(&mut owners, topic, (name, now), Some(ruling))?);
            Ok(())
        })?;
        claimed.ok_or(Error::Closed { path: None })
    }

    fn claim_by(
        &self,
        known: &mut Option<Owners>,
        topic: &Topic,
        (name, now): (&str, i64),
        ruling: Option<&dyn Ruling>,
    ) -> Result<Arc<Claim>> {
        if known.is_none() {
            *known = Some(self.read()?);
        }
        let Some(all) = known else {
            unreachable!("just set")
        };
        let owners = all.entry(topic.name.clone()).or_default();
        let is_owned = |queue: u32, owner: &Owner| match ruling {
            Some(ruling) => ruling.is_owned(&topic.name, queue),
            None => owner.claim().is_some(),
        };
        let queue = choose(owners, topic.write_queues(), name, is_owned)
            .ok_or_else(|| all_owned(topic, owners))?;
        let claim = Arc::new(Claim {
            topic: topic.name.clone(),
            name: name.into(),
            queue,
            is_lost: AtomicBool::new(false),
            grant: OnceLock::new(),
        });
        let owner = Owner {
            name: name.into(),
            since: now,
            claim: Arc::downgrade(&claim),
        };
        let before = owners.insert(queue, owner);
        if let Err(error) = self.write(all) {
            let owners = all.entry(topic.name.clone()).or_default();
            match before {
                Some(before) => owners.insert(queue, before),
                None => owners.remove(&queue),
            };
            return Err(error);
        }
        if let Some(before) = before.and_then(|before| before.claim()) {
            before.give_up();
        }
        if let Some(ruling) = ruling {
            // Done after the table is durable: if writing it fails, the earlier owner keeps the
            // queue.
            let _ = claim.grant.set(ruling.grant(&topic.name, queue, now)?);
        }
        Ok(claim)
    }

    fn read(&self) -> Result<Owners> {
        let Some((disk, path)) = &self.place else {
            return Ok(Owners::new());
        };
        let loaded: Loaded<Owners> = load(&**disk, path, TABLE_LEN_MAX, |text| {
            let members = json::object(text)?;
            parse(&members).ok_or_else(|| Reason::Unreadable("not owners of queues".to_owned()))
        })?;
        Ok(loaded.table()?.unwrap_or_default())
    }

    fn write(&self, all: &Owners) -> Result<()> {
        let Some((disk, path)) = &self.place else {
            return Ok(());
        };
        let of_topic = |owners: &BTreeMap<u32, Owner>| {
            let rows = owners.iter().map(|(queue, owner)| {
                let row = json!({"name": &*owner.name, "since": owner.since});
                (queue.to_string(), row)
            });
            Value::Object(rows.collect())
        };
        let topics = all
            .iter()
            .map(|(topic, of)| (topic.to_string(), of_topic(of)));
        let table = Value::Object(topics.collect());
        replace(&**disk, path, table.to_string().as_bytes())
    }
}

/// The queue for a producer of this name; `None` if all have owners.
fn choose(
    owners: &BTreeMap<u32, Owner>,
    queues: u32,
    name: &str,
    is_owned: impl Fn(u32, &Owner) -> bool,
) -> Option<u32> {
    let own = owners.iter().find(|(_, owner)| *owner.name == *name);
    if let Some((queue, _)) = own {
        return Some(*queue);
    }
    let is_new = |queue: &u32| !owners.contains_key(queue);
    let gone = owners
        .iter()
        .filter(|(queue, owner)| !is_owned(**queue, owner));
    let oldest = || gone.min_by_key(|(_, owner)| owner.since);
    (0..queues)
        .find(is_new)
        .or_else(|| oldest().map(|(queue, _)| *queue))
}

#[cold]
fn all_owned(topic: &Topic, owners: &BTreeMap<u32, Owner>) -> Error {
    let names: Vec<&str> = owners.values().map(|owner| &*owner.name).take(10).collect();
    let (queues, topic) = (owners.len(), &topic.name);
    let reason = format!(
        "each of the {queues} queues of topic {topic:?} has an owner ({}): close a producer, or \
         give the topic more queues with create_topic",
        names.join(", ")
    );
    Error::option("queue", "\"own\"", reason)
}

fn parse(members: &Map<String, Value>) -> Option<Owners> {
    let mut all = Owners::new();
    for (topic, rows) in members {
        let owners = all.entry(topic.as_str().into()).or_default();
        for (queue, row) in rows.as_object()? {
            let owner = Owner {
                name: row.get("name")?.as_str()?.into(),
                since: row.get("since")?.as_i64()?,
                claim: Weak::new(),
            };
            owners.insert(queue.parse().ok()?, owner);
        }
    }
    Some(all)
}
