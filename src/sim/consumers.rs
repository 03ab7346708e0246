//! Stories of a group of consumers of a log of either engine: messages are sent, delayed, delivered
//! and settled, and progress is saved, until the machine stops.
//!
//! ```text
//!   life: open, then send | delay | poll | ack | nack | reject | let time pass | flush | commit
//!   last life: all time passes, and everything that comes is acknowledged
//! ```
//!
//! The law: a message that was durable is delivered until it was acknowledged, or is a dead letter;
//! no opening finds progress past the end of a queue; a row that another process wrote to the table
//! of offsets stays there; and a dead letter that was durable is there.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, ROOT, Story, World, hold};
use super::random::Random;
use super::steps::{options, said};
use crate::consumer::ProgressRow;
use crate::disk::Disk;
use crate::engine::commit_log::CommitLog;
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Durability, Filter};
use crate::error::{Error, Result as Done};
use crate::options::{EngineKind, Flush, Options};
use crate::{Consumer, ConsumerOptions, Delay, Delivery, Draft, Order, Store, record_progress};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const QUEUES: u32 = 2;
const VISIBILITY: Duration = Duration::from_secs(60);
/// Messages of a poll.
const POLL: usize = 100;
/// Polls of the last life. Each is followed by two hours.
const POLLS: usize = 100;

/// An engine whose messages are consumed.
pub trait Consumed {
    /// The options of a store.
    fn options() -> Options;
}

impl Consumed for CommitLog {
    fn options() -> Options {
        options(true)
    }
}

impl Consumed for PartitionLog {
    fn options() -> Options {
        Options {
            engine: Some(EngineKind::PartitionLog),
            flush: Some(Flush::Async),
            segment_bytes: Some(4096),
            ..Options::default()
        }
    }
}

/// Several lives of one store.
pub struct Consumers<E = CommitLog> {
    world: World,
    order: Order,
    sent: u32,
    /// Sent, but not known to be durable.
    fresh: BTreeSet<u32>,
    /// Durable.
    durable: BTreeSet<u32>,
    /// Acknowledged, perhaps without effect after a crash.
    handled: BTreeSet<u32>,
    /// Rejected, but not known to be durable.
    rejected: BTreeSet<u32>,
    /// Durable dead letters.
    dead: BTreeSet<u32>,
    /// The offset that another process has written to the table of offsets.
    foreign: Option<u64>,
    engine: PhantomData<E>,
}

impl<E: Consumed> Story for Consumers<E> {
    type Store = Store;

    fn new(seed: u64) -> Consumers<E> {
        let mut random = Random::new(seed);
        Consumers {
            order: random.pick(&[Order::None, Order::Queue]),
            world: World::new(random),
            sent: 0,
            fresh: BTreeSet::new(),
            durable: BTreeSet::new(),
            handled: BTreeSet::new(),
            rejected: BTreeSet::new(),
            dead: BTreeSet::new(),
            foreign: None,
            engine: PhantomData,
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn lives(&mut self) -> u64 {
        2 + self.world.random.below(4)
    }

    fn faults(&mut self, ahead: u64) -> Faults {
        let random = &mut self.world.random;
        let stop = random.pick(&[Stop::Power, Stop::Power, Stop::Process]);
        Faults {
            dies_at: (ahead > 1).then(|| 1 + random.below(400)),
            ..Faults::none(stop)
        }
    }

    fn live(&mut self, disk: &mut Arc<SimDisk>, is_last: bool) -> Result<Option<Store>, Breach> {
        let store = self.open(disk);
        let lived = match &store {
            Ok(store) if is_last => self.last_life(store),
            Ok(store) => self.lived(disk, store).map_err(said),
            Err(error) => Err(format!("cannot be opened: {error}")),
        };
        self.fresh.clear();
        self.rejected.clear();
        match disk.is_dead() {
            true => Ok(store.ok()),
            false => lived.map(|()| store.ok()),
        }
    }
}

impl<E: Consumed> Consumers<E> {
    fn open(&self, disk: &Arc<SimDisk>) -> Done<Store> {
        let machine = self.world.machine(disk);
        let store = Store::open_on(&machine, Path::new(ROOT), E::options())?;
        store.create_topic("orders", QUEUES)?;
        Ok(store)
    }

    fn join(&self, store: &Store) -> Done<Consumer> {
        let options = ConsumerOptions {
            order: self.order,
            visibility_timeout: VISIBILITY,
            retry_in_place: 3,
            ..ConsumerOptions::default()
        };
        store.consumer(&["orders"], "billing", options)
    }

    /// Random calls, until one fails.
    fn lived(&mut self, disk: &Arc<SimDisk>, store: &Store) -> Done<()> {
        let consumer = self.join(store)?;
        let mut held: Vec<Delivery> = Vec::new();
        for _ in 0..self.world.random.below(60) {
            match self.world.random.below(12) {
                0..=2 => self.send(store)?,
                3 | 4 => held.extend(consumer.poll(POLL, Duration::ZERO)?),
                5..=7 if !held.is_empty() => {
                    let which = self.world.random.below(held.len() as u64);
                    let delivery = held.remove(which as usize);
                    self.settle(&consumer, &delivery)?;
                }
                8 => {
                    // Long enough for a save, a delay level, or a time-out.
                    self.world
                        .clock
                        .advance(self.world.random.pick(&[1_000, 6_000, 70_000]));
                    store.clock_moved()?;
                }
                9 => {
                    store.flush()?;
                    self.flushed();
                }
                10 => {
                    consumer.commit()?;
                    self.flushed();
                }
                11 => self.write_beside(&shared(disk))?,
                _ => {}
            }
        }
        if self.world.random.chance(30) {
            drop(consumer);
            store.close()?;
            self.flushed();
        }
        Ok(())
    }

    fn send(&mut self, store: &Store) -> Done<()> {
        let body = self.sent.to_be_bytes();
        let delay = match self.world.random.below(3) {
            0 => Delay::None,
            1 => Delay::Level(1 + self.world.random.below(3) as u8),
            _ => Delay::For(Duration::from_millis(self.world.random.below(20_000))),
        };
        let draft = Draft {
            body: &body,
            ..Draft::default()
        };
        let queue = self.world.random.below(u64::from(QUEUES)) as u32;
        let producer = store.producer("orders", Some(queue))?;
        self.fresh.insert(self.sent);
        self.sent += 1;
        producer
            .send_delayed(&draft, delay, Durability::Written)
            .map(drop)
    }

    fn settle(&mut self, consumer: &Consumer, delivery: &Delivery) -> Done<()> {
        let number = number_of(&delivery.message)?;
        let settled = match self.world.random.below(4) {
            0 | 1 => {
                // Whether the acknowledgement counts depends on when the machine stops.
                self.handled.insert(number);
                consumer.ack([&delivery.receipt])
            }
            2 => consumer.nack(delivery, Some(1)),
            _ => {
                let rejected = consumer.reject(delivery, None);
                if rejected.is_ok() {
                    self.rejected.insert(number);
                }
                rejected
            }
        };
        match settled {
            Err(Error::AlreadySettled { .. } | Error::OwnershipLost { .. }) => Ok(()),
            settled => settled,
        }
    }

    fn flushed(&mut self) {
        self.durable.append(&mut self.fresh);
        self.dead.append(&mut self.rejected);
    }

    /// What a Spark driver does in its own process.
    fn write_beside(&mut self, disk: &Arc<dyn Disk>) -> Done<()> {
        let offset = self.foreign.map_or(1, |offset| offset + 1);
        let row = ProgressRow {
            topic: "orders".into(),
            group: "spark".into(),
            queue: 0,
            offset,
        };
        record_progress(disk, Path::new(ROOT), &[row])?;
        self.foreign = Some(offset);
        Ok(())
    }

    /// The last life, in which no call fails.
    fn last_life(&mut self, store: &Store) -> Result<(), Breach> {
        let groups = store.groups().map_err(said)?;
        let foreign = groups.iter().find(|it| &*it.group == "spark");
        let foreign = foreign.map(|it| it.committed);
        hold!(
            foreign >= self.foreign,
            "the row of another group is {foreign:?}, was {:?}",
            self.foreign
        );
        let consumer = self.join(store).map_err(said)?;
        // If progress were past the end of a queue, it would skip some of these messages.
        for _ in 0..20 {
            self.send(store).map_err(said)?;
        }
        store.flush().map_err(said)?;
        self.flushed();
        for _ in 0..POLLS {
            let got = consumer.poll(POLL, Duration::ZERO).map_err(said)?;
            for delivery in &got {
                self.handled
                    .insert(number_of(&delivery.message).map_err(said)?);
            }
            let receipts = got.iter().map(|it| &it.receipt);
            consumer.ack(receipts).map_err(said)?;
            self.world.clock.advance(7_200_000);
            store.clock_moved().map_err(said)?;
        }
        let meanings = store.engine().map_err(said)?.meanings();
        let dead = meanings.dead_topic("billing");
        let letters = store.read(&dead, 0, 0, 10_000, None, &Filter::default());
        let letters = letters.map_err(said)?.messages;
        let letters: Done<BTreeSet<u32>> = letters.iter().map(number_of).collect();
        let letters = letters.map_err(said)?;
        for number in &self.durable {
            let is_done = self.handled.contains(number) || letters.contains(number);
            hold!(is_done, "message {number} was never delivered");
        }
        for number in &self.dead {
            hold!(letters.contains(number), "dead letter {number} is gone");
        }
        Ok(())
    }
}

/// The number of a message, which is its body.
fn number_of(message: &crate::Message) -> Done<u32> {
    let body = message.body()?;
    let number = body.as_ref().try_into().map(u32::from_be_bytes);
    Ok(number.unwrap_or(u32::MAX))
}
