//! Planted bugs: errors in the store that tests switch on to check the test harness.
//!
//! A harness that looks for bugs can be trusted only as long as it finds these. In other builds
//! [`planted`] is the constant `false`, and the compiler removes the bugs.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A flush leaves messages that linger.
    LeaveLingering,
    /// Waiters are completed before the sync.
    AcknowledgeEarly,
    /// The name of a file is not made durable.
    NoDirectorySync,
    /// Recovery accepts records with wrong checksums.
    NoChecksum,
    /// Recovery after a power loss trusts queues and index up to their marks.
    TrustIndex,
    /// Old bytes after the end of the log are not erased.
    StaleTail,
    /// Zeros after the end of the log count as durable without a sync.
    TrustZeros,
    /// Queue entries before those that lead past the end of the log count, wherever they lead.
    TrustEntries,
    /// A failed sync is retried and counts as success if the retry succeeds.
    RetryFailedSync,
    /// Opening treats bytes in the page cache as durable.
    TrustCache,
    /// A failed sync leaves the page cache marked as complete.
    VouchBlindly,
    /// After a failed sync of the state page, the kernel may drop the page, and with it the note
    /// that the log is in doubt.
    DropDoubt,
    /// Opening concludes from an equal boot id that the page cache is the same.
    TrustBoot,
    /// A flush counts pages that were faulted in ahead as flushed.
    SyncPopulated,
    /// The lists of waiters are swapped after the sync.
    SwapLate,
    /// The mark of durable bytes moves before the sync.
    ProgressAhead,
    /// The intake does not check whether a commit is in the log already.
    ForgetMarkers,
    /// The files of a commit are removed before it is durable.
    FinishEarly,
    /// The marker of a part is appended before its rows, by itself.
    MarkerFirst,
    /// The marker of a part is appended after its rows, by itself.
    MarkerLater,
    /// A commit replaces an earlier one of the same batch that has begun.
    ReplaceManifest,
    /// Retention retires the last marker of a query.
    RetireMarkers,
    /// A commit that finds no space stays begun, although none of it is in the log.
    KeepBegun,
    /// Parts of a commit are appended before the names of its files are durable.
    BeginUnsynced,
    /// Parts of a commit are appended before its manifest and stages are durable.
    StagesUnsynced,
    /// A commit without a manifest counts as appended, whatever the log holds.
    TrustGone,
    /// A commit whose batch was committed earlier counts as that one, and loses its stages.
    EarlierWins,
    /// A task that finds no page for words removes the file of that name before it creates one.
    ReplacePage,
    /// A refused commit keeps its name, so that no other commit of its batch can use it.
    RefuseTorn,
    /// A batch whose number is in the log counts as appended, even with other rows.
    TrustNumbers,
    /// A reader checks for messages before it loads the word on which it sleeps.
    LookLate,
    /// A sender clears the mark of the sleepers only after it has woken them.
    ClearLate,
    /// A thread that is about to sleep is woken once, which may be too early.
    WakeOnce,
    /// A reader that dispatched while it waited returns without checking for the work that it was
    /// woken for.
    LeaveBlindly,
    /// A thread sleeps without checking whether the lock that it waits for was released.
    SleepUnchecked,
    /// The append lock of a shared store keeps its generation when it changes hands.
    KeepGeneration,
    /// A released append lock wakes nobody.
    WakeNobody,
    /// A released append lock no longer says that a holder died inside.
    ForgetDirt,
    /// The progress of an owner is stored without a check whether it still owns the queue.
    AdvanceBlindly,
    /// The epoch of a queue stays when its owner loses the queue.
    KeepEpoch,
    /// A process reads the owner of a queue while another process changes it.
    AdoptUnlocked,
    /// A record that cannot be read is treated as missing.
    TakeErrorForAbsence,
    /// Progress of a group is saved past the durable end of the log.
    CommitAhead,
    /// Progress past a refused message is saved before its successor is durable.
    ForgetSuccessors,
    /// The progress of delay levels is saved before the delivered messages are durable.
    LevelsAhead,
    /// The table of delivery times is saved before the delivered messages are durable.
    TimesAhead,
    /// The table of offsets is not read again before it is written.
    KeepTable,
    /// A batch of a partition states a last offset that is too high.
    WrongLastOffset,
    /// Recovery of a partition keeps the index files that it finds.
    TrustSegmentIndex,
    /// A sync for a group forgets one of the partitions.
    ForgetPartition,
    /// The mark of a clean stop stays while messages are appended.
    KeepCleanMark,
    /// Segments after a hole are kept.
    KeepLaterSegments,
    /// Recovery of a partition takes damage above the recovery point for the end.
    EndAtHole,
    /// Bytes after the end of a partition are not cut off.
    KeepSegmentTail,
    /// The copy of a compaction is not synced before it replaces segments.
    SwapUnsynced,
    /// Compaction removes segments before the names of their replacement are durable.
    RemoveBeforeSwap,
    /// Compaction removes the suffix of a replacement's name before it removes segments.
    SwapBeforeRemove,
    /// A batch that compaction has rebuilt ends with its last record.
    WrongCompactedOffset,
    /// Compaction begins before the recovery point covers the segments that it replaces.
    CompactUnsaved,
    /// Retention removes segments of a partition before its first offset is durable.
    StartUnsaved,
    /// Retention removes several log files before the names of the first are durably gone.
    RetireTogether,
    /// Recovery takes the remains of a removal for the end of a partition, or of a queue.
    EndAtRemoved,
    /// The remains of a process that died with the append lock of a shared log are not removed.
    KeepUnpublished,
    /// A shared segment keeps the unused room after its messages when it is completed.
    KeepRoom,
    /// A process of a shared commit log erases the remains of a dead one without noting that they
    /// are not synced yet.
    EraseUnnoted,
    /// The remains of an atomic batch in a shared partition log count as durably cut off as soon as
    /// they are cut off.
    TrustCut,
    /// An opening moves the marks of a commit log before it saves the next offset of a queue whose
    /// last message is lost.
    OffsetsLate,
    /// A queue ends with its last message that is not lost.
    ForgetLost,
    /// A queue ends with its last message that was not damaged before it was dispatched.
    ForgetGiven,
    /// An opening ignores the saved intent of an atomic batch.
    ForgetIntent,
    /// The intent of an atomic batch replaces one whose batch is not durable.
    ReplaceIntent,
    /// An archive copies segments of a partition that are complete, but not durable.
    ArchiveUnsynced,
    /// Retention of a partition log removes segments that no archive has.
    ForgetArchives,
}

/// Whether this bug is active.
#[cfg(not(test))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this bug is active in this thread.
#[cfg(test)]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// The bug that is active in this thread.
#[cfg(test)]
pub fn current() -> Option<Bug> {
    PLANTED.get()
}

/// Activates a bug in this thread, or none.
#[cfg(test)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// A point at which a process that shares a store may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// It has a slot, and nothing else.
    Joined,
    /// It holds the append lock and has stored nothing.
    Locked,
    /// It has stored records that are not published.
    Stored,
    /// It has begun another log file.
    Rolled,
    /// It has published records and holds the append lock.
    Published,
    /// It has erased the remains of another process, and has not published that; they may not be
    /// synced.
    Erased,
    /// It has written the table of topics, and has not published that.
    TopicsWritten,
    /// It runs no services yet, and has recovered the store.
    Recovered,
    /// It has dispatched records, and has not moved the mark.
    Dispatched,
    /// It has synced the log, and has not moved the mark.
    Synced,
    /// It leaves the store, and has released nothing.
    Leaving,
    /// It has removed a log file, and others are due.
    Retired,
    /// It has begun a commit, and none of it is in the log.
    Begun,
    /// It has appended a part of a commit, and has not published that.
    PartAppended,
    /// All of a commit is durable, and its files are there.
    Taken,
    /// It has taken a queue from its owner, and has not stored the next one.
    Revoked,
    /// A consumer of it knows where its group begins, and has not joined.
    Prepared,
    /// It has joined a group, and the queues are not shared out again.
    Enrolled,
    /// It has settled a message, and has not stored the progress.
    Settled,
    /// One of its consumers knows the bounds of a queue, and has read nothing.
    Bounded,
}

/// Passes a point.
#[cfg(not(test))]
#[inline(always)]
pub const fn pass(_: Point) {}

/// The action of a thread at a point.
#[cfg(test)]
type Act = (Point, Box<dyn FnOnce()>);

#[cfg(test)]
thread_local! {
    static ACT: std::cell::RefCell<Option<Act>> = const { std::cell::RefCell::new(None) };
}

/// Sets the action of this thread when it passes a point for the first time.
#[cfg(test)]
pub fn at(point: Point, act: impl FnOnce() + 'static) {
    ACT.set(Some((point, Box::new(act))));
}

/// Removes the action of this thread.
#[cfg(test)]
pub fn nowhere() {
    ACT.set(None);
}

/// Passes a point. Dies there if the environment says so: `FOREBAY_DIE_AT` names the point, after a
/// colon the number of earlier passes.
#[cfg(test)]
pub fn pass(point: Point) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    static DEATH: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let death = DEATH.get_or_init(|| {
        let given = std::env::var("FOREBAY_DIE_AT").ok()?;
        let (point, passes) = given.split_once(':')?;
        Some((point.to_owned(), AtomicI64::new(passes.parse().ok()?)))
    });
    if let Some((name, left)) = death
        && *name == format!("{point:?}")
        && left.fetch_sub(1, Ordering::Relaxed) == 0
    {
        std::process::abort();
    }
    let act = ACT.with_borrow_mut(|act| act.take_if(|(at, _)| *at == point));
    if let Some((_, act)) = act {
        act();
    }
}
