//! Each durable message must be delivered until it is settled, by a log of either engine.

use crate::engine::partition_log::PartitionLog;
use crate::plant::Bug;
use crate::sim::consumers::Consumers;
use crate::sim::telling::{CRASHES_TO_FIND, crashes, find_each, hold_through, tell};

#[test]
fn every_durable_message_is_delivered_until_it_is_settled() {
    hold_through(crashes() / 28, tell::<Consumers>);
}

#[test]
fn every_durable_message_of_a_partition_log_is_delivered_until_it_is_settled() {
    hold_through(crashes() / 28, tell::<Consumers<PartitionLog>>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_consumers() {
    find_each(
        &[
            (Bug::CommitAhead, 303),
            (Bug::ForgetSuccessors, 28),
            (Bug::LevelsAhead, 60),
            (Bug::TimesAhead, 12),
            (Bug::KeepTable, 8),
        ],
        CRASHES_TO_FIND / 7,
        tell::<Consumers>,
    );
}

/// A partition log has no table of levels: the table of times is that of all delayed messages.
#[test]
fn the_simulator_finds_planted_bugs_of_consumers_of_a_partition_log() {
    find_each(
        &[
            (Bug::CommitAhead, 417),
            (Bug::ForgetSuccessors, 21),
            (Bug::TimesAhead, 12),
            (Bug::KeepTable, 8),
        ],
        CRASHES_TO_FIND / 7,
        tell::<Consumers<PartitionLog>>,
    );
}
