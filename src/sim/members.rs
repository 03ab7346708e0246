//! Stories of processes that share a log: one of them may die inside an append, as the one that
//! runs the services, or when it joins or leaves. Others go on, and then the power fails.
//!
//! ```text
//!   life: one joins --> check --> others join, send, sync, die, leave --> the power fails
//! ```
//!
//! The story does what the threads of the processes would do, one step at a time. The others find
//! out at once what of the messages of a dead one is in the log; from there on that must stay. Who
//! finds out may die of it, too. [`Shared`] is what the story needs of a log.

use super::disk::SimDisk;
use super::faults::{Faults, Stop};
use super::frame::{Breach, Enlisted, Sent, Stepped, Story, World, append};
use super::locks::{Dead, Halt, live_or_die};
use super::rare::{new_disk, next};
use crate::engine::{Atomicity, Engine};
use crate::error::Result as Done;
use crate::machine::Machine;
use crate::plant::{self, Point};
use crate::record::Batch;
use crate::sync::Mutex;
use std::sync::Arc;

const STOPS: [Stop; 4] = [Stop::Power, Stop::Power, Stop::Device, Stop::Process];
/// At most this many processes share the store at a time.
const MEMBERS_MAX: usize = 3;
/// A life has fewer steps than this.
const STEPS: u64 = 30;
/// Points at which a process dies, besides the calls of its disk.
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
/// Those at which one dies that joins.
const POINTS_OF_JOINING: [Point; 2] = [Point::Joined, Point::Recovered];

/// Opens a log in a process.
pub type Opener<E> = Box<dyn FnOnce(&Machine) -> Done<E> + Send>;

/// A log that processes share, and what was sent to it.
pub trait Shared: Stepped + 'static {
    /// The log of a seed.
    fn shared(seed: u64) -> Self;

    /// How a process opens it.
    fn opener(&self) -> Opener<Self::Engine>;

    /// Encodes messages, all of one topic.
    fn encode(
        &mut self,
        rows: u64,
        engine: &Self::Engine,
        atomicity: Atomicity,
    ) -> (Batch, Vec<Sent>);

    /// Adds messages that are in the log.
    fn take(&mut self, sent: Vec<Sent>, atomicity: Atomicity) -> Result<(), Breach>;

    /// Adds messages of a process that has died before it could tell.
    fn doubt(&mut self, sent: Vec<Sent>, atomicity: Atomicity);

    /// Forgets messages of a dead process that this one does not find in the log.
    fn find_out(&mut self, engine: &Self::Engine, disk: &SimDisk) -> Result<(), Breach>;

    /// What was appended up to `durable` outlives every crash.
    fn acknowledge(&mut self, durable: u64);

    /// Syncs what all processes have published, if the process runs the services or may. Returns
    /// whether it does.
    fn flush(engine: &Self::Engine) -> Done<bool>;

    /// The same for a full pass.
    fn pass(engine: &Self::Engine) -> Done<()>;

    /// Ends the file in use.
    fn roll(engine: &Self::Engine) -> Done<()>;

    /// Takes away what a process has left that died inside an append.
    fn mend(engine: &Self::Engine) -> Done<()>;
}

/// A log that processes share, over several lives of the machine.
pub struct Members<L> {
    pub log: L,
    /// The number of the next process.
    next: u64,
}

/// A process.
pub struct Member<E> {
    disk: Arc<SimDisk>,
    engine: Arc<E>,
}

/// The processes of a machine. The threads of the dead ones end after it has stopped.
pub struct Herd<E> {
    pub living: Vec<Member<E>>,
    dead: Vec<Dead>,
}

/// What a process does that may die meanwhile.
pub enum Deed {
    Send(Batch, Vec<Sent>, Atomicity),
    Flush,
    Pass,
    Roll,
    Leave,
    Mend,
}

/// Where a process dies.
#[derive(Clone, Copy)]
pub enum End {
    At(Point),
    /// After this many calls of its disk.
    After(u64),
}

impl<E> Clone for Member<E> {
    fn clone(&self) -> Member<E> {
        Member {
            disk: Arc::clone(&self.disk),
            engine: Arc::clone(&self.engine),
        }
    }
}

impl<E> Herd<E> {
    pub fn new() -> Herd<E> {
        Herd {
            living: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// Does something in a process that dies meanwhile, or after it: the result is `None`, or what
    /// it has returned.
    fn dies<T: Send + 'static>(
        &mut self,
        disk: &Arc<SimDisk>,
        end: End,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, Breach> {
        let own = Arc::clone(disk);
        let (done, dead) = live_or_die(move |halt: Halt| {
            match end {
                End::At(point) => plant::at(point, || halt.here()),
                End::After(calls) => {
                    let mut halt = Some(halt);
                    let act = move || halt.take().into_iter().for_each(Halt::here);
                    own.meanwhile.after_calls(calls, Box::new(act));
                }
            }
            let done = act();
            // Nobody dies here any more.
            own.meanwhile.forget();
            plant::nowhere();
            done
        })?;
        self.dead.push(dead);
        disk.release_locks();
        Ok(done)
    }
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

/// The error of a call that nothing but the end of the machine may fail.
pub fn unless_dead<T>(disk: &SimDisk, done: Done<T>, what: &str) -> Result<Option<T>, Breach> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(_) if disk.is_dead() => Ok(None),
        Err(error) => Err(format!("{what} failed: {error}")),
    }
}

impl Deed {
    /// Does it. Returns the messages that may be in the log.
    fn run<L: Shared>(self, member: &Member<L::Engine>) -> Done<Option<Enlisted>> {
        let Member { disk, engine } = member;
        match self {
            Deed::Send(mut batch, sent, atomicity) => {
                let sent = append(&**engine, disk, &mut batch, sent, atomicity, false);
                return Ok(Some(sent));
            }
            Deed::Flush => drop(L::flush(engine)?),
            Deed::Pass => L::pass(engine)?,
            Deed::Roll if L::flush(engine)? => L::roll(engine)?,
            Deed::Leave if L::flush(engine)? => engine.close()?,
            Deed::Mend => L::mend(engine)?,
            Deed::Roll | Deed::Leave => {}
        }
        Ok(None)
    }

    /// The messages that it sends.
    fn sent(&self) -> (Vec<Sent>, Atomicity) {
        match self {
            Deed::Send(_, sent, atomicity) => (sent.clone(), *atomicity),
            _ => (Vec::new(), Atomicity::Rows),
        }
    }
}

impl<L: Shared> Members<L> {
    /// A process that is about to join: its disk, its machine, and how it opens the log.
    fn newcomer(&mut self, disk: &Arc<SimDisk>) -> (Arc<SimDisk>, Machine, Opener<L::Engine>) {
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

    fn pick(&mut self, herd: &Herd<L::Engine>) -> Option<usize> {
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
            // It would wait for the one before it to be durable.
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
    fn note_done(
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

    /// What a process does that is about to die.
    fn last_deed(
        &mut self,
        herd: &Herd<L::Engine>,
        disk: &SimDisk,
        number: usize,
    ) -> Result<Deed, Breach> {
        let deed = match self.world().random.below(10) {
            0..6 => self.send(herd, disk, number)?,
            6 => Deed::Flush,
            7 => Deed::Pass,
            8 => Deed::Roll,
            _ => Deed::Leave,
        };
        if matches!(deed, Deed::Roll | Deed::Leave) {
            self.flush(herd, disk)?;
        }
        Ok(deed)
    }

    /// Where a process dies: at one of these points, or within so many calls of its disk.
    fn end(&mut self, points: &[Point], calls: u64) -> End {
        let random = &mut self.world().random;
        match random.chance(50) {
            true => End::At(random.pick(points)),
            false => End::After(random.below(calls)),
        }
    }

    /// A process dies in the middle of something, and another one finds out.
    pub fn die(
        &mut self,
        herd: &mut Herd<L::Engine>,
        disk: &Arc<SimDisk>,
        number: usize,
        deed: Deed,
        end: End,
    ) -> Result<(), Breach> {
        self.fall(herd, disk, number, deed, end)?;
        if self.world().random.chance(25) {
            // The kernel stores everything from time to time.
            disk.store_all();
        }
        self.find_out(herd, disk)
    }

    /// A process dies in the middle of something.
    pub fn fall(
        &mut self,
        herd: &mut Herd<L::Engine>,
        disk: &Arc<SimDisk>,
        number: usize,
        deed: Deed,
        end: End,
    ) -> Result<(), Breach> {
        let (sent, atomicity) = deed.sent();
        let member = herd.living.remove(number);
        let own = Arc::clone(&member.disk);
        match herd.dies(&own, end, move || deed.run::<L>(&member))? {
            Some(done) => self.note_done(disk, done, atomicity)?,
            None => self.log.doubt(sent, atomicity),
        }
        Ok(())
    }

    /// Another process dies when it joins.
    fn die_joining(
        &mut self,
        herd: &mut Herd<L::Engine>,
        disk: &Arc<SimDisk>,
    ) -> Result<(), Breach> {
        let (own, machine, open) = self.newcomer(disk);
        let end = self.end(&POINTS_OF_JOINING, 60);
        if let Some(opened) = herd.dies(&own, end, move || open(&machine))? {
            unless_dead(disk, opened, "joining")?;
        }
        self.find_out(herd, disk)
    }

    /// Has some process find out what the dead one has left.
    pub fn find_out(
        &mut self,
        herd: &mut Herd<L::Engine>,
        disk: &Arc<SimDisk>,
    ) -> Result<(), Breach> {
        let Some(number) = self.pick(herd) else {
            return self.join(herd, disk);
        };
        if self.world().random.chance(25) {
            let deed = match self.world().random.chance(30) {
                true => Deed::Flush,
                false => Deed::Mend,
            };
            let end = self.end(&[Point::Erased], 8);
            return self.die(herd, disk, number, deed, end);
        }
        let engine = Arc::clone(&herd.living[number].engine);
        self.log.find_out(&engine, disk)
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

    /// The power fails, and another process opens the store.
    pub fn fail_power(&mut self, herd: Herd<L::Engine>, disk: &SimDisk) -> Result<(), Breach> {
        let disk = next(disk, Stop::Power);
        drop(herd);
        self.world().kept = false;
        self.join(&mut Herd::new(), &disk)
    }

    /// Processes share a log. The one that runs the services dies while it stores a batch, after it
    /// has begun some files for it, and the kernel stores by itself all that there is. Another one
    /// takes away what the batch has left, perhaps after a third one has died of it, and the power
    /// fails: nothing of the batch comes back.
    pub fn is_torn_by_the_dead(&mut self, seed: u64, atomicity: Atomicity) -> Result<(), Breach> {
        let disk = new_disk(seed, Stop::Power);
        let mut herd = Herd::new();
        self.join(&mut herd, &disk)?;
        self.join(&mut herd, &disk)?;
        let mut deeds = Vec::new();
        for _ in 0..24 {
            let rows = 4 + self.world().random.below(8);
            deeds.push(self.log.encode(rows, &herd.living[0].engine, atomicity));
        }
        let passes = 1 + self.world().random.below(12);
        let member = herd.living.remove(0);
        let dying = member.clone();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        let (_, dead) = live_or_die(move |halt: Halt| {
            halt_at_roll(passes, halt);
            for (batch, sent) in deeds {
                tells.lock().push((sent.clone(), None));
                let done = Deed::Send(batch, sent, atomicity).run::<L>(&dying);
                if let Some(last) = tells.lock().last_mut() {
                    last.1 = done.ok().flatten();
                }
            }
        })?;
        herd.dead.push(dead);
        for (sent, done) in std::mem::take(&mut *told.lock()) {
            match done {
                Some((sent, _)) => self.log.take(sent, atomicity)?,
                None => self.log.doubt(sent, atomicity),
            }
        }
        member.disk.release_locks();
        disk.store_all();
        if self.world().random.chance(50) {
            self.join(&mut herd, &disk)?;
        }
        if self.world().random.chance(70) {
            let end = self.end(&[Point::Erased], 60);
            self.fall(&mut herd, &disk, 0, Deed::Mend, end)?;
        }
        self.find_out(&mut herd, &disk)?;
        self.fail_power(herd, &disk)
    }
}

/// Halts at one of the next files that this process begins.
fn halt_at_roll(passes: u64, halt: Halt) {
    plant::at(Point::Rolled, move || match passes {
        0 | 1 => halt.here(),
        _ => halt_at_roll(passes - 1, halt),
    });
}
