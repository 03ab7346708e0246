//! Stories of processes that share a partition log: one of them may die inside an append, as the
//! one that runs the services, or when it joins or leaves. Others go on, and then the power fails.
//!
//! ```text
//!   life: one joins --> check --> others join, send, sync, die, leave --> the power fails
//! ```
//!
//! The story does what the threads of the processes would do, one step at a time. The others find
//! out at once what of the messages of a dead one is in the log; from there on that must stay.

use super::disk::SimDisk;
use super::faults::{Faults, Stop};
use super::frame::{Breach, Enlisted, ROOT, Sent, Story, World, append, hold};
use super::locks::{Dead, Halt, live_or_die};
use super::partitions::{Partitions, Place};
use super::rare::{new_disk, next};
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::durability::Durable;
use crate::engine::{Atomicity, Engine, QueueLogs};
use crate::error::Result as Done;
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::plant::{self, Point};
use crate::record::Batch;
use crate::sync::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const STOPS: [Stop; 4] = [Stop::Power, Stop::Power, Stop::Device, Stop::Process];
/// At most this many processes share the store at a time.
const MEMBERS_MAX: usize = 3;
/// A life has fewer steps than this.
const STEPS: u64 = 30;
/// Points at which a process dies, besides the calls of its disk.
const POINTS: [Point; 8] = [
    Point::Locked,
    Point::Rolled,
    Point::Stored,
    Point::Published,
    Point::Erased,
    Point::Synced,
    Point::Recovered,
    Point::Leaving,
];

/// A store that processes share, over several lives of the machine.
pub struct Members {
    partitions: Partitions,
    options: Options,
    /// The number of the next process.
    next: u64,
}

/// A process.
#[derive(Clone)]
struct Member {
    disk: Arc<SimDisk>,
    engine: Arc<PartitionLog>,
}

/// The processes of a machine. The threads of the dead ones end after it has stopped.
#[derive(Default)]
pub struct Herd {
    living: Vec<Member>,
    dead: Vec<Dead>,
}

/// What a process does that may die meanwhile.
enum Deed {
    Send(Batch, Vec<Sent>, Atomicity),
    Flush,
    Pass,
    Roll,
    Leave,
}

impl Story for Members {
    type Store = Herd;

    fn new(seed: u64) -> Members {
        let partitions = Partitions::new(seed);
        let options = Options {
            mode: Mode::Share,
            linger: Duration::ZERO,
            batch_bytes: None,
            segment_ms: None,
            retention: None,
            retention_bytes: None,
            keep_unarchived: false,
            // The dead are found at once, and nobody else holds the lock.
            busy_timeout: Duration::from_secs(60),
            ..partitions.options.clone()
        };
        let mut members = Members {
            partitions,
            options,
            next: 1,
        };
        members.partitions.options = members.options.clone();
        members
    }

    fn world(&mut self) -> &mut World {
        self.partitions.world()
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

    fn live(&mut self, disk: &mut Arc<SimDisk>, _: bool) -> Result<Option<Herd>, Breach> {
        let mut herd = Herd::default();
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
fn unless_dead<T>(disk: &SimDisk, done: Done<T>, what: &str) -> Result<Option<T>, Breach> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(_) if disk.is_dead() => Ok(None),
        Err(error) => Err(format!("{what} failed: {error}")),
    }
}

/// Syncs what all processes have published, if the process runs the services or may.
fn flush(engine: &PartitionLog) -> Done<bool> {
    let leads = engine.try_lead()?;
    if leads {
        let parts = engine.parts();
        parts.flush_to(parts.published())?;
    }
    Ok(leads)
}

impl Deed {
    /// Does it. Returns the messages that may be in the log.
    fn run(self, member: &Member) -> Done<Option<Enlisted>> {
        let Member { disk, engine } = member;
        match self {
            Deed::Send(mut batch, sent, atomicity) => {
                let sent = append(&**engine, disk, &mut batch, sent, atomicity, false);
                return Ok(Some(sent));
            }
            Deed::Flush => drop(flush(engine)?),
            Deed::Pass if engine.try_lead()? => engine.parts().full_pass()?,
            Deed::Roll if flush(engine)? => drop(engine.roll()?),
            Deed::Leave if flush(engine)? => engine.close()?,
            Deed::Pass | Deed::Roll | Deed::Leave => {}
        }
        Ok(None)
    }
}

/// Two processes share a log. The one that runs the services dies while it stores an atomic batch,
/// after it has begun some segments for it, and the kernel stores by itself all that there is. The
/// other one cuts off what the batch has left, and the power fails: nothing of it comes back.
pub fn torn_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut story = Members::new(seed);
    story.options.segment_bytes = Some(4096);
    let disk = new_disk(seed, Stop::Power);
    let mut herd = Herd::default();
    story.join(&mut herd, &disk)?;
    story.join(&mut herd, &disk)?;
    let mut deeds = Vec::new();
    for _ in 0..24 {
        let rows = 4 + story.world().random.below(8);
        deeds.push(story.partitions.encode(rows, &herd.living[0].engine));
    }
    let passes = 1 + story.world().random.below(12);
    let member = herd.living.remove(0);
    let dying = member.clone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let (_, dead) = live_or_die(move |halt: Halt| {
        halt_at_roll(passes, halt);
        for (batch, sent) in deeds {
            tells.lock().push((sent.clone(), None));
            let done = Deed::Send(batch, sent, Atomicity::Whole).run(&dying);
            if let Some(last) = tells.lock().last_mut() {
                last.1 = done.ok().flatten();
            }
        }
    });
    herd.dead.push(dead);
    for (sent, done) in std::mem::take(&mut *told.lock()) {
        match done {
            Some((sent, _)) => story.partitions.take_shared(sent, true)?,
            None => story.partitions.doubt(sent, true),
        }
    }
    member.disk.release_locks();
    disk.store_all();
    story.find_out(&mut herd, &disk)?;
    let disk = next(&disk, Stop::Power);
    drop(herd);
    story.world().kept = false;
    story.join(&mut Herd::default(), &disk)
}

/// Halts at one of the next segments that this process begins.
fn halt_at_roll(passes: u64, halt: Halt) {
    plant::at(Point::Rolled, move || match passes {
        0 | 1 => halt.here(),
        _ => halt_at_roll(passes - 1, halt),
    });
}

impl Members {
    fn machine(&self, disk: &Arc<SimDisk>) -> Machine {
        self.partitions.world.machine(disk)
    }

    /// Another process joins. The first one checks the store.
    fn join(&mut self, herd: &mut Herd, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let own = Arc::new(disk.beside(self.next));
        self.next += 1;
        let opened = PartitionLog::open(&self.machine(&own), Path::new(ROOT), &self.options);
        let Some(engine) = unless_dead(disk, opened, "joining")? else {
            return Ok(());
        };
        if herd.living.is_empty() {
            let checked = self.partitions.check_shared(&engine);
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

    fn work(&mut self, herd: &mut Herd, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let Some(number) = self.pick(herd) else {
            return self.join(herd, disk);
        };
        match self.world().random.below(100) {
            0..12 if herd.living.len() < MEMBERS_MAX => self.join(herd, disk),
            0..45 => {
                let deed = self.send(herd, disk, number)?;
                self.do_it(herd, disk, number, deed)
            }
            45..70 => {
                let done = flush(&herd.living[number].engine);
                unless_dead(disk, done, "a flush").map(drop)
            }
            70..76 => self.do_it(herd, disk, number, Deed::Pass),
            76..80 => {
                self.flush(herd, disk)?;
                self.do_it(herd, disk, number, Deed::Roll)
            }
            80..84 => self.leave(herd, disk, number),
            _ => self.die(herd, disk, number),
        }
    }

    fn pick(&mut self, herd: &Herd) -> Option<usize> {
        let count = herd.living.len() as u64;
        (count > 0).then(|| self.world().random.below(count) as usize)
    }

    /// Lets some process sync all that was published.
    fn flush(&mut self, herd: &Herd, disk: &SimDisk) -> Result<(), Breach> {
        for member in &herd.living {
            if unless_dead(disk, flush(&member.engine), "a flush")? == Some(true) {
                break;
            }
        }
        Ok(())
    }

    /// Messages that a process is about to send.
    fn send(&mut self, herd: &Herd, disk: &SimDisk, number: usize) -> Result<Deed, Breach> {
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
        let (batch, sent) = self.partitions.encode(rows, &engine);
        Ok(Deed::Send(batch, sent, atomicity))
    }

    fn do_it(
        &mut self,
        herd: &Herd,
        disk: &SimDisk,
        number: usize,
        deed: Deed,
    ) -> Result<(), Breach> {
        let whole = deed.whole();
        let done = unless_dead(disk, deed.run(&herd.living[number]), "a process")?;
        match done.flatten() {
            Some((sent, _)) => self.partitions.take_shared(sent, whole),
            None => Ok(()),
        }
    }

    fn leave(&mut self, herd: &mut Herd, disk: &SimDisk, number: usize) -> Result<(), Breach> {
        self.flush(herd, disk)?;
        let member = herd.living.remove(number);
        unless_dead(disk, member.engine.close(), "leaving").map(drop)
    }

    fn leave_all(&mut self, herd: &mut Herd, disk: &SimDisk) -> Result<(), Breach> {
        while let Some(number) = self.pick(herd) {
            self.leave(herd, disk, number)?;
        }
        if !disk.is_dead() {
            self.partitions.acknowledge(u64::MAX);
        }
        Ok(())
    }

    /// A process dies in the middle of something.
    fn die(&mut self, herd: &mut Herd, disk: &Arc<SimDisk>, number: usize) -> Result<(), Breach> {
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
        let (sent, whole) = (deed.sent(), deed.whole());
        let member = herd.living.remove(number);
        let random = &mut self.world().random;
        let (point, calls) = (random.pick(&POINTS), random.below(25));
        let at_point = random.chance(50);
        let dying = member.clone();
        let (done, dead) = live_or_die(move |halt: Halt| {
            if at_point {
                plant::at(point, || halt.here());
            } else {
                let mut halt = Some(halt);
                let act = move || halt.take().into_iter().for_each(Halt::here);
                dying.disk.meanwhile.after_calls(calls, Box::new(act));
            }
            let done = deed.run(&dying);
            // Nobody dies here any more.
            dying.disk.meanwhile.forget();
            plant::nowhere();
            done
        });
        herd.dead.push(dead);
        member.disk.release_locks();
        match done {
            Some(done) => {
                let done = unless_dead(disk, done, "a process")?;
                if let Some((sent, _)) = done.flatten() {
                    self.partitions.take_shared(sent, whole)?;
                }
            }
            None => self.partitions.doubt(sent, whole),
        }
        self.find_out(herd, disk)
    }

    /// Has some process find out what the dead one has left.
    fn find_out(&mut self, herd: &mut Herd, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        if herd.living.is_empty() {
            return self.join(herd, disk);
        }
        let Some(number) = self.pick(herd) else {
            return Ok(());
        };
        let engine = Arc::clone(&herd.living[number].engine);
        let Some(ends) = unless_dead(disk, engine.mended_ends(), "mending")? else {
            return Ok(());
        };
        self.partitions.settle(&ends)
    }

    /// Adds what is durable to what must survive.
    fn take_note(&mut self, herd: &Herd) {
        if let Some(member) = herd.living.first()
            && !member.disk.is_dead()
        {
            let durable = member.engine.durable_position();
            self.partitions.acknowledge(durable);
        }
    }
}

impl Deed {
    fn whole(&self) -> bool {
        matches!(self, Deed::Send(_, _, Atomicity::Whole))
    }

    /// The messages that it sends.
    fn sent(&self) -> Vec<Sent> {
        match self {
            Deed::Send(_, sent, _) => sent.clone(),
            _ => Vec::new(),
        }
    }
}

impl Partitions {
    /// Checks a store whose processes have all died, and that another one has opened.
    fn check_shared(&mut self, engine: &PartitionLog) -> Result<(), Breach> {
        use super::frame::Stepped;
        self.check(engine)
    }

    /// Adds messages that are in the log.
    fn take_shared(&mut self, sent: Vec<Sent>, whole: bool) -> Result<(), Breach> {
        for sent in &sent {
            let next = self.next_of(sent.queue) as u64;
            let before = sent.offset.min(next);
            hold!(
                !sent.certain || sent.offset >= next,
                "got offset {before} instead of {next}"
            );
        }
        let batch = self.add(sent)?;
        if whole {
            self.whole.push(batch);
        }
        Ok(())
    }

    /// Adds messages of a process that has died before it could tell.
    fn doubt(&mut self, mut sent: Vec<Sent>, whole: bool) {
        for sent in &mut sent {
            (sent.position, sent.end, sent.certain) = (u64::MAX, u64::MAX, false);
        }
        if let Ok(batch) = self.add(sent)
            && whole
        {
            self.whole.push(batch);
        }
    }

    fn next_of(&self, place: Place) -> usize {
        self.sent.get(&place).map_or(0, Vec::len)
    }

    fn add(&mut self, sent: Vec<Sent>) -> Result<Vec<(Place, usize)>, Breach> {
        let mut batch = Vec::new();
        for sent in sent {
            let next = self.next_of(sent.queue);
            hold!(
                !sent.certain || sent.offset == next as u64,
                "got offset {} instead of {next}",
                sent.offset
            );
            batch.push((sent.queue, next));
            self.sent.entry(sent.queue).or_default().push(sent);
        }
        Ok(batch)
    }

    /// Forgets messages of a dead process that are not in the log, given where partitions end.
    fn settle(&mut self, ends: &[(Arc<str>, u32, u64)]) -> Result<(), Breach> {
        let end_of = |place: &Place| {
            let mut ends = ends.iter();
            let found = ends.find(|(topic, queue, _)| (&**topic, *queue) == *place);
            found.map_or(0, |(.., end)| *end as usize)
        };
        for (place, all) in &mut self.sent {
            let (end, certain) = (end_of(place), all.iter().filter(|it| it.certain).count());
            hold!(
                (certain..=all.len()).contains(&end),
                "{place:?} ends at {end}, with {certain} messages of the living and {} of all",
                all.len()
            );
        }
        if let Some(batch) = self.whole.last() {
            let there = batch.iter().filter(|(place, at)| *at < end_of(place));
            let (there, all) = (there.count(), batch.len());
            hold!(
                there == 0 || there == all,
                "{there} of {all} messages of an atomic batch were published"
            );
            if there == 0 {
                self.whole.pop();
            }
        }
        for (place, all) in &mut self.sent {
            all.truncate(end_of(place));
            all.iter_mut().for_each(|sent| sent.certain = true);
        }
        Ok(())
    }
}
