//! Planted bugs: mistakes that a store must not make, behind switches that exist in tests alone.
//!
//! A harness that hunts bugs is believed only while it finds these. In a build that is no test
//! [`planted`] is `false` as a constant, and nothing of the mistakes is left.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Waiters are completed before the sync.
    AcknowledgeEarly,
    /// A file's name is not made durable.
    NoDirectorySync,
    /// Recovery believes a record whose checksums do not hold.
    NoChecksum,
    /// Recovery takes queues and index for whole, up to what the marks say after a power loss.
    TrustIndex,
    /// What lies after the end of the log stays there.
    StaleTail,
    /// Zeros after the end of the log are taken for durable, whoever stored them.
    TrustZeros,
    /// A sync that failed is tried again, and counts when it then succeeds.
    RetryFailedSync,
    /// On opening what is in the page cache is taken for durable.
    TrustCache,
    /// A sync that failed leaves the page cache vouched for.
    VouchBlindly,
    /// On opening the same start of the machine is taken for the same page cache.
    TrustBoot,
    /// A flush covers the pages that are faulted in ahead.
    SyncPopulated,
    /// The lists of those who wait change places after the sync.
    SwapLate,
    /// The mark of what is durable moves before the sync.
    ProgressAhead,
    /// The intake does not look whether a commit is in the log already.
    ForgetMarkers,
    /// The files of a commit go before it is durable.
    FinishEarly,
    /// A commit takes the place of an earlier one of the same batch that was begun.
    ReplaceManifest,
    /// Retention takes the last marker of a query away.
    RetireMarkers,
    /// A commit that finds no room stays begun, though nothing of it is in the log.
    KeepBegun,
    /// Parts of a commit are appended before the names of its files are durable.
    BeginUnsynced,
    /// Parts of a commit are appended before its manifest and its stages are durable.
    StagesUnsynced,
    /// A commit whose manifest is gone counts as appended, whatever the log holds.
    TrustGone,
    /// A commit that finds an earlier one of its batch counts as that one, and loses its stages.
    EarlierWins,
    /// A commit that is refused keeps its name, so that no other of its batch gets it.
    RefuseTorn,
    /// A batch whose number is in the log counts as appended, whatever its rows are.
    TrustNumbers,
    /// A record that cannot be read is taken for one that is not there.
    TakeErrorForAbsence,
}

/// Whether a mistake is to be made.
#[cfg(not(test))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread has been told to make a mistake.
#[cfg(test)]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Tells this thread which mistake to make.
#[cfg(test)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}
