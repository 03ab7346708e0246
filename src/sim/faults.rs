//! The faults of a simulated disk.

/// The power fails at most this many calls after a sync that was left out.
pub const CALLS_AFTER_LIE: [u64; 3] = [8, 60, 400];

/// The faults of a disk, and how its machine stops.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// How the machine stops.
    pub stop: Stop,
    /// The power fails at this call, counted from here; `None` for never.
    pub dies_at: Option<u64>,
    /// How many syncs of 1,000 fail.
    pub failing_syncs: u64,
    /// How many calls of 1,000 find no space.
    pub full: u64,
    /// How many calls of 1,000 on a file or name fail without effect: out of descriptors or memory,
    /// or because the device fails.
    pub failing_calls: u64,
    /// The number of one map of a file that fails in the same way, counted from here.
    pub failing_map: Option<u64>,
    /// The number of one call that fails in the same way, counted from here: any call on a file or
    /// name, even one that only reads.
    pub failing_call: Option<u64>,
    /// Maximum number of sectors that reach the platter by themselves at a call.
    pub written_back: u64,
}

impl Faults {
    /// A disk on which nothing fails.
    pub fn none(stop: Stop) -> Faults {
        Faults {
            stop,
            dies_at: None,
            failing_syncs: 0,
            full: 0,
            failing_calls: 0,
            failing_map: None,
            failing_call: None,
            written_back: 0,
        }
    }

    /// The same disk, on which no call fails, and a machine that does not stop by itself.
    pub fn mended(self) -> Faults {
        Faults {
            written_back: self.written_back,
            ..Faults::none(self.stop)
        }
    }

    /// Whether some calls fail without effect.
    pub fn fail_calls(&self) -> bool {
        self.failing_calls > 0 || self.failing_map.is_some() || self.failing_call.is_some()
    }
}

/// How a machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The process dies: the page cache is kept.
    Process,
    /// The process dies, and the next one reaches the disk through another mount, as in another
    /// container: the page cache is kept, but nothing proves that.
    Moved,
    /// The power fails: what was not synced survives at random.
    Power,
    /// The device disappears and comes back, or a copy of it is mounted: as with a power failure,
    /// but the machine was not restarted.
    Device,
}
