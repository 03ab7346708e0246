//! Deaths of processes that share a log: where they die, and how another process detects and
//! repairs that.

use super::disk::SimDisk;
use super::faults::Stop;
use super::frame::{Breach, Story};
use super::herd::{Deed, End, Herd, Shared, unless_dead};
use super::locks::{Halt, live_or_die};
use super::members::Members;
use super::steps::{new_disk, next};
use crate::engine::Atomicity;
use crate::plant::{self, Point};
use crate::sync::Mutex;
use std::sync::Arc;

/// Points at which a joining process dies.
const POINTS_OF_JOINING: [Point; 2] = [Point::Joined, Point::Recovered];

impl<L: Shared> Members<L> {
    /// What a process does before it dies.
    pub(super) fn last_deed(
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

    /// Where a process dies: at one of these points, or within `calls` calls of its disk.
    pub(super) fn end(&mut self, points: &[Point], calls: u64) -> End {
        let random = &mut self.world().random;
        match random.chance(50) {
            true => End::At(random.pick(points)),
            false => End::After(random.below(calls)),
        }
    }

    /// A process dies in the middle of an action, and another one detects its death.
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

    /// A process dies in the middle of an action.
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
    pub(super) fn die_joining(
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

    /// Makes some process detect what the dead one has left.
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

    /// The power fails, and another process opens the store.
    pub fn fail_power(&mut self, herd: Herd<L::Engine>, disk: &SimDisk) -> Result<(), Breach> {
        let disk = next(disk, Stop::Power);
        drop(herd);
        self.world().kept = false;
        self.join(&mut Herd::new(), &disk)
    }

    /// Processes share a log. The leader dies while it stores a batch, after it has begun files for
    /// it, and the kernel stores everything by itself. Another process removes the remains of the
    /// batch, perhaps after a third one has died doing so, and the power fails: nothing of the
    /// batch comes back.
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
