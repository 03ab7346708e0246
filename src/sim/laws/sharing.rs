//! What processes that share a log must keep while some of them die, and the planted bugs that
//! break it.

use crate::plant::Bug;
use crate::sim::life::Lives;
use crate::sim::members::Members;
use crate::sim::partitions::Partitions;
use crate::sim::telling::{
    CRASHES_TO_FIND, crashes, find, find_each, hold_through, tell, tell_all,
};
use crate::sim::{shared_commit_log, shared_partition_log};

#[test]
fn what_processes_share_outlives_their_deaths_and_every_power_loss() {
    tell_all(shared_partition_log::torn_by_the_dead);
    find(
        (Bug::TrustCut, 1),
        300,
        shared_partition_log::torn_by_the_dead,
    );
    hold_through(crashes() / 60, tell::<Members<Partitions>>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_processes_that_share_a_log() {
    find_each(
        &[
            (Bug::KeepUnpublished, 442),
            (Bug::ForgetIntent, 32),
            (Bug::KeepRoom, 85),
        ],
        CRASHES_TO_FIND / 10,
        tell::<Members<Partitions>>,
    );
}

#[test]
fn what_processes_share_in_a_commit_log_outlives_their_deaths_and_every_power_loss() {
    tell_all(shared_commit_log::torn_by_the_dead);
    tell_all(shared_commit_log::begun_by_the_dead);
    hold_through(crashes() / 60, tell::<Members<Lives>>);
}

#[test]
fn what_a_dead_process_has_erased_does_not_come_back() {
    tell_all(shared_commit_log::erased_by_the_dead);
    find(
        (Bug::EraseUnnoted, 1),
        100,
        shared_commit_log::erased_by_the_dead,
    );
}

#[test]
fn the_simulator_finds_planted_bugs_of_processes_that_share_a_commit_log() {
    find_each(
        &[(Bug::KeepUnpublished, 11)],
        CRASHES_TO_FIND / 10,
        tell::<Members<Lives>>,
    );
}
