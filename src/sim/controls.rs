//! The controls of a simulated disk: a story sets what fails from here on and when the machine
//! stops, and reads counters.

use super::disk::SimDisk;
#[cfg(doc)]
use super::faults::Faults;
use super::names::Name;
use std::path::{Path, PathBuf};

impl SimDisk {
    /// From here on, makes this many of 1,000 syncs fail.
    pub fn fail_syncs(&self, of_1000: u64) {
        self.state.lock().faults.failing_syncs = of_1000;
    }

    /// From here on, makes this many of 1,000 calls find no space.
    pub fn fill(&self, of_1000: u64) {
        self.state.lock().faults.full = of_1000;
    }

    /// From here on, a directory can be traversed but not read.
    pub fn make_unreadable(&self, path: &Path) {
        self.state.lock().unreadable = Some(Name::of(path));
    }

    /// From here on, lets this many of 100 changes of names survive a power failure.
    pub fn keep_names(&self, of_100: u64) {
        self.state.lock().names_kept = of_100;
    }

    /// Makes the kernel store everything, as it does from time to time.
    pub fn store_all(&self) {
        let mut state = self.state.lock();
        let failing = std::mem::take(&mut state.faults.failing_syncs);
        let _ = state.sync_all();
        state.faults.failing_syncs = failing;
    }

    /// Stops the machine at the `calls`th call from here.
    pub fn end_within(&self, calls: u64) {
        let mut state = self.state.lock();
        state.faults.dies_at = Some(state.calls + calls);
    }

    /// Runs `act` with [`Faults::fail_calls`] switched off.
    pub fn without_failing_calls<T>(&self, act: impl FnOnce() -> T) -> T {
        let of_1000 = self.faults().failing_calls;
        self.set_failing_calls(0);
        let done = act();
        self.set_failing_calls(of_1000);
        done
    }

    /// From here on, makes this many of 1,000 calls fail, instead of one particular call.
    pub fn set_failing_calls(&self, of_1000: u64) {
        let mut state = self.state.lock();
        state.faults.failing_calls = of_1000;
        state.faults.failing_map = None;
        state.faults.failing_call = None;
    }

    /// Number of maps so far, and of calls that could have failed, including those that only read.
    pub fn tried(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.maps, state.tried)
    }

    /// Files that were synced since the last call, with the ends of the ranges.
    pub fn take_syncs(&self) -> Vec<(PathBuf, usize)> {
        std::mem::take(&mut self.state.lock().syncs)
    }
}
