//! What a partition log must keep through every crash, compacted or not, and the planted bugs that
//! break it.

use crate::plant::Bug;
use crate::sim::compactions::Compactions;
use crate::sim::partitions::Partitions;
use crate::sim::telling::{
    CRASHES_TO_FIND, crashes, find, find_each, hold_through, tell, tell_all,
};
use crate::sim::{openings, partition_cases, partition_repairs};

#[test]
fn an_interrupted_repair_of_a_partition_log_is_completed_by_the_next_one() {
    tell_all(partition_repairs::of_a_batch);
    tell_all(partition_repairs::of_an_index);
    tell_all(partition_repairs::of_a_table);
}

#[test]
fn what_a_partition_has_acknowledged_outlives_every_power_loss() {
    hold_through(crashes() / 4, tell::<Partitions>);
}

#[test]
fn a_segment_that_a_dead_process_removed_does_not_come_back() {
    tell_all(partition_cases::unlinked_by_the_dead);
}

#[test]
fn what_a_removal_leaves_of_a_partition_takes_nothing_away() {
    tell_all(partition_cases::removed_in_part);
    find(
        (Bug::EndAtRemoved, 1),
        1000,
        partition_cases::removed_in_part,
    );
}

#[test]
fn a_failed_call_while_a_partition_log_is_opened_takes_nothing_away() {
    tell_all(openings::failing_call);
    find((Bug::TakeErrorForAbsence, 1), 300, openings::failing_call);
}

#[test]
fn a_topic_that_was_created_explicitly_outlives_a_power_loss() {
    tell_all(partition_cases::created_explicitly);
}

#[test]
fn the_simulator_finds_planted_bugs_of_partitions() {
    find_each(
        &[
            (Bug::AcknowledgeEarly, 19),
            (Bug::RetryFailedSync, 35),
            (Bug::SwapLate, 54),
            (Bug::ProgressAhead, 21),
            (Bug::WrongLastOffset, 1),
            (Bug::NoChecksum, 49),
            (Bug::NoDirectorySync, 3),
            (Bug::ForgetPartition, 2),
            (Bug::KeepCleanMark, 7),
            (Bug::KeepLaterSegments, 215),
            (Bug::KeepSegmentTail, 19),
            (Bug::StartUnsaved, 16),
            (Bug::ForgetIntent, 43),
            (Bug::ReplaceIntent, 70),
            (Bug::ArchiveUnsynced, 68),
            (Bug::ForgetArchives, 92),
            (Bug::LeaveLingering, 32),
        ],
        CRASHES_TO_FIND,
        tell::<Partitions>,
    );
}

#[test]
fn compaction_keeps_the_latest_message_of_each_key_through_every_crash() {
    hold_through(crashes() / 60, tell::<Compactions>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_compaction() {
    find_each(
        &[
            (Bug::SwapUnsynced, 14),
            (Bug::RemoveBeforeSwap, 345),
            (Bug::SwapBeforeRemove, 1409),
            (Bug::WrongCompactedOffset, 7),
            (Bug::CompactUnsaved, 2),
        ],
        CRASHES_TO_FIND,
        tell::<Compactions>,
    );
}
