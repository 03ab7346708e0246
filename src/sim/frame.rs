//! The frame of a story: several lives of one store, each of which ends when its machine stops.
//!
//! ```text
//!   life: open --> check --> work, work, ... --> close, or not --> the machine stops
//! ```
//!
//! [`Story`] is what all have in common. [`Stepped`] is a story that steps through an engine and
//! sends to it: its [`Life`] has the senders, and the waiters that show which messages are
//! acknowledged.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::random::Random;
use crate::clock::{Clock, ManualClock};
use crate::engine::commit_log::CommitLog;
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::flush::FlushService;
use crate::engine::{Appended, Atomicity, Durability, Engine, Verification, Waiter};
use crate::error::{Error, Result as Done};
use crate::machine::Machine;
use crate::record::{Batch, Draft};
use crate::sync::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Path of the store.
pub const ROOT: &str = "/store";
/// Store time of the first message, in ms.
pub const EPOCH_MS: i64 = 1_700_000_000_000;

/// How the law was broken.
pub type Breach = String;

macro_rules! hold {
    ($condition:expr, $($breach:tt)+) => {
        if !$condition {
            return Err(format!($($breach)+));
        }
    };
}
pub(super) use hold;

/// The state that every story has.
pub struct World {
    pub random: Random,
    pub clock: Arc<ManualClock>,
    /// Whether only processes have died since the last check of the store.
    pub kept: bool,
    /// Messages so far.
    sent: u64,
    crashes: u64,
}

impl World {
    /// The world of a story with these random numbers.
    pub fn new(random: Random) -> World {
        World {
            random,
            clock: ManualClock::at(EPOCH_MS),
            kept: true,
            sent: 0,
            crashes: 0,
        }
    }

    /// A machine with this disk.
    pub fn machine(&self, disk: &Arc<SimDisk>) -> Machine {
        Machine {
            clock: Arc::<ManualClock>::clone(&self.clock),
            ..Machine::stepped(shared(disk))
        }
    }

    /// The number of the next message.
    pub fn next_id(&mut self) -> u64 {
        self.sent += 1;
        self.sent - 1
    }

    /// Adds a message to a batch.
    pub fn push(
        &mut self,
        batch: &mut Batch,
        id: u64,
        queue: (&'static str, u32),
        draft: &Draft<'_>,
    ) -> Sent {
        let pushed = batch.push(queue.0, queue.1, draft, self.clock.now_ms());
        assert!(pushed.is_ok(), "a message within the limits was rejected");
        Sent {
            id,
            queue,
            offset: 0,
            position: 0,
            end: 0,
            batch: None,
            certain: false,
            acknowledged: false,
        }
    }

    /// Draws the faults of a life of a story of a log, for [`Story::faults`]. The machine stops in
    /// one of the ways `stops`, and most often within `calls` calls.
    pub fn faults(&mut self, ahead: u64, stops: &[Stop], calls: u64, fails: Fails<'_>) -> Faults {
        let random = &mut self.random;
        let faults = Faults {
            stop: random.pick(stops),
            dies_at: random.chance(70).then(|| 1 + random.below(calls)),
            failing_syncs: random.pick(&[0, 0, 0, 20, 200]),
            full: random.pick(&[0, 0, 0, 30]),
            failing_calls: random.pick(fails.calls),
            failing_map: (fails.maps && random.chance(40)).then(|| 1 + random.below(16)),
            failing_call: None,
            written_back: random.pick(&[0, 1, 3]),
        };
        match ahead {
            0 => faults.mended(),
            _ => faults,
        }
    }

    /// Stops the machine. Returns the disk that the next life finds.
    pub fn crash(&mut self, disk: &SimDisk, faults: Faults) -> Arc<SimDisk> {
        self.crashes += 1;
        Arc::new(disk.restart(faults))
    }
}

/// How many calls of the disk fail in a life.
#[derive(Clone, Copy)]
pub struct Fails<'a> {
    /// How many calls of 1,000; one of these numbers.
    pub calls: &'a [u64],
    /// Whether a map may fail, too.
    pub maps: bool,
}

impl Fails<'_> {
    /// Some calls and maps.
    pub const SOME: Fails<'static> = Fails {
        calls: &[0, 0, 0, 0, 5, 30],
        maps: true,
    };
}

/// Verifies a store, which must have no damage.
pub fn verified(engine: &dyn Engine) -> Result<Verification, Breach> {
    let verified = engine.verify(&mut |_, _| true);
    let verified = verified.map_err(|error| format!("verify failed: {error}"))?;
    let damage = &verified.damage;
    hold!(damage.is_empty(), "verify found {damage:?}");
    Ok(verified)
}

/// [`verified`] for a store that was just opened, which must not have reported damage either.
pub fn undamaged(engine: &dyn Engine) -> Result<Verification, Breach> {
    let damage = engine.report().damage();
    hold!(damage.is_empty(), "reported damage: {damage:?}");
    verified(engine)
}

/// The number of messages up to the last one that was acknowledged.
pub fn acknowledged(sent: &[Sent]) -> usize {
    let last = sent.iter().rposition(|sent| sent.acknowledged);
    last.map_or(0, |last| last + 1)
}

/// The body of a message: its number, then bytes derived from it. It has `len` bytes, or else 8 and
/// less than `max` more.
pub fn body(id: u64, len: Option<usize>, max: u64) -> Vec<u8> {
    let mut random = Random::new(id);
    let drawn = 8 + random.below(max) as usize;
    let len = len.unwrap_or(drawn);
    let mut body = id.to_le_bytes().to_vec();
    while body.len() < len {
        body.extend_from_slice(&random.next().to_le_bytes());
    }
    body.truncate(len);
    body
}

/// A store over several lives.
pub trait Story: Sized {
    /// The open store.
    type Store;

    /// The story of a seed.
    fn new(seed: u64) -> Self;

    /// The state that every story has.
    fn world(&mut self) -> &mut World;

    /// Draws the number of lives.
    fn lives(&mut self) -> u64;

    /// Draws the faults of the next life; `ahead` is the number of lives left, including this one.
    /// It is 0 for the additional life that follows if the last one ended at a call of the disk.
    fn faults(&mut self, ahead: u64) -> Faults;

    /// One life, until its machine stops. The returned store is dropped afterwards, when its calls
    /// no longer reach the disk.
    fn live(
        &mut self,
        disk: &mut Arc<SimDisk>,
        is_last: bool,
    ) -> Result<Option<Self::Store>, Breach>;

    /// Runs the story; returns its number of crashes.
    fn tell(mut self) -> Result<u64, Breach> {
        let lives = self.lives();
        let random = Random::new(self.world().random.next());
        let mut disk = Arc::new(SimDisk::new(random, self.faults(lives)));
        let (mut life, mut died) = (0, false);
        while life < lives || died && life < 2 * lives {
            life += 1;
            let store = self.live(&mut disk, life >= lives)?;
            died = disk.is_dead();
            let faults = self.faults(lives.saturating_sub(life));
            disk = self.world().crash(&disk, faults);
            drop(store);
        }
        Ok(self.world().crashes)
    }
}

/// An engine whose services a story steps.
pub trait Steps: Engine + 'static {
    /// The flush service.
    fn service(&self, start: Instant) -> FlushService;

    /// One step of the flush service.
    fn step_flush(&self, service: &mut FlushService, time: Instant);
}

macro_rules! steps {
    ($engine:ty) => {
        impl Steps for $engine {
            fn service(&self, start: Instant) -> FlushService {
                FlushService::new(self.flush_rules(), start)
            }

            fn step_flush(&self, service: &mut FlushService, time: Instant) {
                service.step(self.parts(), time);
            }
        }
    };
}
steps!(CommitLog);
steps!(PartitionLog);

/// A story that steps through an engine.
pub trait Stepped: Story<Store = Arc<Self::Engine>> {
    /// The engine.
    type Engine: Steps;
    /// A life has fewer steps than this.
    const STEPS: u64;

    fn open(&self, machine: &Machine) -> Done<Self::Engine>;

    /// Checks a store that was just opened.
    fn check(&mut self, engine: &Self::Engine) -> Result<(), Breach>;

    /// One step.
    fn work(&mut self, life: &mut Life<Self::Engine>) -> Result<(), Breach>;

    /// Takes note of what was acknowledged by a step, or by closing with success.
    fn take_note(&mut self, life: &mut Life<Self::Engine>, is_closed: bool) -> Result<(), Breach>;

    /// Opens and checks the store; `None` if it cannot be opened on this disk.
    fn opened(&mut self, disk: &Arc<SimDisk>) -> Result<Option<Self::Engine>, Breach> {
        self.world().kept &= disk.was_kept();
        let machine = self.world().machine(disk);
        let engine = match self.open(&machine) {
            Ok(engine) => engine,
            Err(_) if disk.is_dead() || disk.has_faults() => return Ok(None),
            Err(error) => return Err(format!("opening failed: {error}")),
        };
        if !disk.is_dead() {
            // The check runs without faults, even if opening had some.
            let checked = disk.without_failing_calls(|| self.check(&engine));
            // The machine may stop during the check itself.
            if !disk.is_dead() {
                checked?;
                self.world().kept = true;
            }
        }
        Ok(Some(engine))
    }

    /// Works with an open store, and closes it or not.
    fn worked(
        &mut self,
        disk: &Arc<SimDisk>,
        engine: Self::Engine,
    ) -> Result<Arc<Self::Engine>, Breach> {
        let mut life = Life::new(disk, engine);
        for _ in 0..self.world().random.below(Self::STEPS) {
            if life.disk.is_dead() {
                break;
            }
            self.work(&mut life)?;
            self.take_note(&mut life, false)?;
        }
        if self.world().random.chance(20) {
            let closed = life.engine.close();
            self.take_note(&mut life, closed.is_ok())?;
        }
        Ok(life.engine)
    }

    /// A life: [`Stepped::opened`], then [`Stepped::worked`].
    fn lived(&mut self, disk: &Arc<SimDisk>) -> Result<Option<Arc<Self::Engine>>, Breach> {
        match self.opened(disk)? {
            Some(engine) => self.worked(disk, engine).map(Some),
            None => Ok(None),
        }
    }
}

/// A message that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its number, which is also in the body.
    pub id: u64,
    /// Topic and queue.
    pub queue: (&'static str, u32),
    /// Its offset.
    pub offset: u64,
    /// Position of its record.
    pub position: u64,
    /// Position after the append; `u64::MAX` if only an error reported the append.
    pub end: u64,
    /// Its atomic batch.
    pub batch: Option<u64>,
    /// Whether it was in the log before the machine stopped.
    pub certain: bool,
    /// Whether it must survive, in stories that check each message.
    pub acknowledged: bool,
}

/// Messages that may be in the log, and their waiter.
pub type Enlisted = (Vec<Sent>, Option<Arc<Waiter>>);

/// An open store.
pub struct Life<E> {
    pub disk: Arc<SimDisk>,
    pub engine: Arc<E>,
    pub time: Instant,
    service: FlushService,
    waiters: Vec<(u64, Arc<Waiter>)>,
    /// Messages that another sender appended during a sync.
    meanwhile: Arc<Mutex<Vec<Enlisted>>>,
}

impl<E: Steps> Life<E> {
    /// A store that was just opened.
    pub fn new(disk: &Arc<SimDisk>, engine: E) -> Life<E> {
        let time = Instant::now();
        Life {
            disk: Arc::clone(disk),
            service: engine.service(time),
            engine: Arc::new(engine),
            time,
            waiters: Vec::new(),
            meanwhile: Arc::default(),
        }
    }

    /// Lets time pass, then steps the flush service.
    pub fn pass(&mut self, ms: u64, clock: &ManualClock) {
        self.time += Duration::from_millis(ms);
        clock.advance(ms);
        self.engine.step_flush(&mut self.service, self.time);
    }

    /// Appends a batch with these messages. Returns those that may be in the log, and a waiter if
    /// the sender waits.
    pub fn send(
        &self,
        (mut batch, sent): (Batch, Vec<Sent>),
        atomicity: Atomicity,
        waits: bool,
    ) -> Enlisted {
        append(
            &*self.engine,
            &self.disk,
            &mut batch,
            sent,
            atomicity,
            waits,
        )
    }

    /// Makes another sender append and enlist in the middle of the next sync.
    pub fn send_during_sync(&self, (mut batch, sent): (Batch, Vec<Sent>)) {
        let engine = Arc::clone(&self.engine);
        let done = Arc::clone(&self.meanwhile);
        let weak = Arc::downgrade(&self.disk);
        let mut sent = Some(sent);
        self.disk.meanwhile.during_sync(Box::new(move || {
            let (Some(sent), Some(disk)) = (sent.take(), weak.upgrade()) else {
                return;
            };
            let enlisted = append(&*engine, &disk, &mut batch, sent, Atomicity::Rows, true);
            done.lock().push(enlisted);
        }));
    }

    /// What other senders have appended since the last call.
    pub fn take_meanwhile(&self) -> Vec<Enlisted> {
        std::mem::take(&mut *self.meanwhile.lock())
    }

    /// Remembers the waiter of the append that ends at `end`.
    pub fn wait(&mut self, end: u64, waiter: Option<Arc<Waiter>>) {
        self.waiters.extend(waiter.map(|waiter| (end, waiter)));
    }

    /// The highest end of an append whose waiter has completed with success since the last call; 0
    /// if there is none.
    pub fn take_acknowledged(&mut self) -> u64 {
        let mut durable = 0;
        self.waiters.retain(|(end, waiter)| {
            match waiter.wait(Duration::ZERO) {
                Some(Ok(())) => durable = durable.max(*end),
                None => return true,
                _ => {}
            }
            false
        });
        durable
    }
}

/// Appends messages, all of one topic. They may or may not be in the log if the machine has stopped
/// meanwhile, and if an error reports that they were appended.
pub fn append(
    engine: &impl Engine,
    disk: &SimDisk,
    batch: &mut Batch,
    mut sent: Vec<Sent>,
    atomicity: Atomicity,
    waits: bool,
) -> Enlisted {
    let mut append = |topic: &str| -> Done<Appended> {
        let topic = engine.topic_for_append(topic)?;
        engine.append(&mut [(&topic, batch)], atomicity, Durability::Written)
    };
    match append(sent[0].queue.0) {
        Ok(appended) => {
            let certain = !disk.is_dead();
            for (sent, place) in sent.iter_mut().zip(&appended.rows) {
                sent.offset = place.offset;
                sent.position = place.position;
                sent.end = appended.end;
                sent.certain = certain;
            }
            let waiter = waits.then(|| engine.enlist(appended.end));
            (sent, waiter)
        }
        Err(error) => {
            if !matches!(error, Error::Failed { appended: true, .. }) {
                sent.clear();
            }
            for sent in &mut sent {
                (sent.position, sent.end) = (u64::MAX, u64::MAX);
            }
            (sent, None)
        }
    }
}
