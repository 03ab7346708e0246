//! The epochs of a log: each opening for writing begins one.

/// One opening for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Its number, from 1 on.
    pub number: u64,
    /// When it began, in ns since 1970. Distinguishes it from an epoch of the same number in a
    /// store that has replaced this one.
    pub began_ns: u64,
    /// End of the log when it began.
    pub start: u64,
}

/// The epochs of a log. A reader that saved a position compares epochs to detect truncation or
/// replacement of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// Number of the newest epoch.
    pub number: u64,
    /// The last epochs, as far as they are known, in order.
    pub known: Vec<Epoch>,
}

impl Epochs {
    /// The newest one.
    pub fn newest(&self) -> Option<Epoch> {
        self.known.last().copied()
    }

    /// Compares the log, now durable up to `durable`, with the log that a reader saw: that one was
    /// durable up to `position`, in the epoch `number` that began at `began_ns` (0 if unknown).
    /// Returns `None` if nothing was lost, 0 if another log has replaced it, and otherwise the
    /// position up to which both are the same.
    ///
    /// An epoch begins at the end of the log that the writer found. So the lowest beginning since
    /// then is where the log was cut, however much was appended later. Epochs that are no longer
    /// known count as harmless.
    pub fn intact_until(
        &self,
        (number, began_ns, position): (u64, u64, u64),
        durable: u64,
    ) -> Option<u64> {
        let same = self.known.iter().find(|epoch| epoch.number == number);
        let is_other = |epoch: &Epoch| began_ns > 0 && epoch.began_ns != began_ns;
        if number > self.number || same.is_some_and(is_other) {
            return Some(0);
        }
        let later = self.known.iter().filter(|epoch| epoch.number > number);
        let left = later.map(|epoch| epoch.start).fold(durable, u64::min);
        (left < position).then_some(left)
    }
}
