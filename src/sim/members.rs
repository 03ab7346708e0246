//! Stories of processes that share a log: one of them may die inside an append, as the one that
//! runs the services, or when it joins or leaves. The others continue, and then the power fails.
//!
//! ```text
//!   life: one joins --> check --> others join, send, sync, die, leave --> the power fails
//! ```
//!
//! The story does what the threads of the processes would do, one step at a time. The others
//! determine at once which messages of a dead process are in the log; from then on these must stay.
//! A process that determines this may die doing so.

use super::disk::SimDisk;
use super::faults::{Faults, Stop};
use super::frame::{Breach, Enlisted, Story, World};
use super::herd::{Deed, Herd, Member, Opener, Shared, unless_dead};
use crate::engine::{Atomicity, Engine};
use crate::error::Result as Done;
use crate::machine::Machine;
use crate::plant::Point;
use std::sync::Arc;

const STOPS: [Stop; 4] = [Stop::Power, Stop::Power, Stop::Device, Stop::Process];
/// At most this many processes share the store at a time.
const MEMBERS_MAX: usize = 3;
/// A life has fewer steps than this.
const STEPS: u64 = 30;
/// Points at which a process may die, besides calls of its disk.
const POINTS: [Point; 10] = [
    Point::Locked,
    Point::Rolled,
    Point::Stored,
    Point::Published,
    Point::Erased,
    Point::TopicsWritten,
    Point::Synced,
    Point::Dispatched,
    Point::Recovered,
    Point::Leaving,
];

/// A log that processes share, over several lives of the machine.
pub struct Members<L> {
    pub log: L,
    /// The number of the next process.
    next: u64,
}

impl<L: Shared> Story for Members<L> {
    type Store = Herd<L::Engine>;

    fn new(seed: u64) -> Members<L> {
        Members {
            log: L::shared(seed),
            next: 1,
        }
    }

    fn world(&mut self) -> &mut World {
        self.log.world()
    }

    fn lives(&mut self) -> u64 {
        2 + self.world().random.below(4)
    }

    fn faults(&mut self, ahead: u64) -> Faults {
        let random = &mut self.world().random;
        let faults = Faults {
            dies_at: random.chance(60).then(|| 1 + random.below(300)),
            written_back: random.pick(&[0, 1, 3]),
            ..Faults::none(random.pick(&STOPS))
        };
        match ahead {
            0 => faults.mended(),
            _ => faults,
        }
    }

    fn live(
        &mut self,
        disk: &mut Arc<SimDisk>,
        _: bool,
    ) -> Result<Option<Herd<L::Engine>>, Breach> {
        let mut herd = Herd::new();
        self.world().kept &= disk.was_kept();
        self.join(&mut herd, disk)?;
        for _ in 0..self.world().random.below(STEPS) {
            if disk.is_dead() {
                break;
            }
            self.work(&mut herd, disk)?;
            self.take_note(&herd);
        }
        if self.world().random.chance(20) && !disk.is_dead() {
            self.leave_all(&mut herd, disk)?;
        }
        Ok(Some(herd))
    }
}

impl<L: Shared> Members<L> {
    /// A process that is about to join: its disk, its machine, and how it opens the log.
    pub(super) fn newcomer(
        &mut self,
        disk: &Arc<SimDisk>,
    ) -> (Arc<SimDisk>, Machine, Opener<L::Engine>) {
        let own = Arc::new(disk.beside(self.next));
        self.next += 1;
        let machine = self.world().machine(&own);
        (own, machine, self.log.opener())
    }

    /// Another process joins. The first one checks the store.
    pub fn join(&mut self, herd: &mut Herd<L::Engine>, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let (own, machine, open) = self.newcomer(disk);
        let Some(engine) = unless_dead(disk, open(&machine), "joining")? else {
            return Ok(());
        };
        if herd.living.is_empty() {
            let checked = self.log.check(&engine);
            if disk.is_dead() {
                return Ok(());
            }
            checked?;
            self.world().kept = true;
        }
        herd.living.push(Member {
            disk: own,
            engine: Arc::new(engine),
        });
        Ok(())
    }

    fn work(&mut self, herd: &mut Herd<L::Engine>, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let Some(number) = self.pick(herd) else {
            return self.join(herd, disk);
        };
        match self.world().random.below(100) {
            0..12 if herd.living.len() < MEMBERS_MAX => self.join(herd, disk),
            0..45 => {
                let deed = self.send(herd, disk, number)?;
                self.do_it(herd, disk, number, deed)
            }
            45..70 => self.do_it(herd, disk, number, Deed::Flush),
            70..76 => self.do_it(herd, disk, number, Deed::Pass),
            76..80 => {
                self.flush(herd, disk)?;
                self.do_it(herd, disk, number, Deed::Roll)
            }
            80..84 => self.leave(herd, disk, number),
            84..87 if herd.living.len() < MEMBERS_MAX => self.die_joining(herd, disk),
            _ => {
                let deed = self.last_deed(herd, disk, number)?;
                let end = self.end(&POINTS, 25);
                self.die(herd, disk, number, deed, end)
            }
        }
    }

    pub(super) fn pick(&mut self, herd: &Herd<L::Engine>) -> Option<usize> {
        let count = herd.living.len() as u64;
        (count > 0).then(|| self.world().random.below(count) as usize)
    }

    /// Lets some process sync all that was published.
    pub fn flush(&mut self, herd: &Herd<L::Engine>, disk: &SimDisk) -> Result<(), Breach> {
        for member in &herd.living {
            if unless_dead(disk, L::flush(&member.engine), "a flush")? == Some(true) {
                break;
            }
        }
        Ok(())
    }

    /// Messages that a process is about to send.
    pub fn send(
        &mut self,
        herd: &Herd<L::Engine>,
        disk: &SimDisk,
        number: usize,
    ) -> Result<Deed, Breach> {
        let rows = 1 + self.world().random.below(8);
        let atomicity = match rows > 1 && self.world().random.chance(50) {
            true => Atomicity::Whole,
            false => Atomicity::Rows,
        };
        if atomicity == Atomicity::Whole {
            // An atomic batch would wait until the one before it is durable.
            self.flush(herd, disk)?;
        }
        let engine = Arc::clone(&herd.living[number].engine);
        let (batch, sent) = self.log.encode(rows, &engine, atomicity);
        Ok(Deed::Send(batch, sent, atomicity))
    }

    pub fn do_it(
        &mut self,
        herd: &Herd<L::Engine>,
        disk: &SimDisk,
        number: usize,
        deed: Deed,
    ) -> Result<(), Breach> {
        let (_, atomicity) = deed.sent();
        let done = deed.run::<L>(&herd.living[number]);
        self.note_done(disk, done, atomicity)
    }

    /// Takes note of what a process has done.
    pub(super) fn note_done(
        &mut self,
        disk: &SimDisk,
        done: Done<Option<Enlisted>>,
        atomicity: Atomicity,
    ) -> Result<(), Breach> {
        match unless_dead(disk, done, "a process")?.flatten() {
            Some((sent, _)) => self.log.take(sent, atomicity),
            None => Ok(()),
        }
    }

    fn leave(
        &mut self,
        herd: &mut Herd<L::Engine>,
        disk: &SimDisk,
        number: usize,
    ) -> Result<(), Breach> {
        self.flush(herd, disk)?;
        let member = herd.living.remove(number);
        if disk.is_dead() {
            return Ok(());
        }
        unless_dead(disk, member.engine.close(), "leaving").map(drop)
    }

    fn leave_all(&mut self, herd: &mut Herd<L::Engine>, disk: &SimDisk) -> Result<(), Breach> {
        while let Some(number) = self.pick(herd) {
            self.leave(herd, disk, number)?;
        }
        if !disk.is_dead() {
            self.log.acknowledge(u64::MAX);
        }
        Ok(())
    }

    /// Adds what is durable to what must survive.
    pub fn take_note(&mut self, herd: &Herd<L::Engine>) {
        if let Some(member) = herd.living.first()
            && !member.disk.is_dead()
        {
            let durable = member.engine.durable_position();
            self.log.acknowledge(durable);
        }
    }
}
