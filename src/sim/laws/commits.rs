//! Each committed row must be in the log exactly once, in a log of either engine.

use crate::engine::partition_log::PartitionLog;
use crate::plant::Bug;
use crate::sim::commits::Commits;
use crate::sim::telling::{
    CRASHES_TO_FIND, crashes, find, find_each, hold_through, tell, tell_all,
};

#[test]
fn a_refused_or_withdrawn_commit_does_not_come_back() {
    tell_all(Commits::is_dealt_with);
    tell_all(Commits::is_heard);
}

#[test]
fn a_commit_without_space_can_be_withdrawn_before_its_first_part() {
    tell_all(Commits::is_out_of_room);
    find((Bug::KeepBegun, 1), 300, Commits::is_out_of_room);
}

#[test]
fn a_commit_of_a_dead_driver_can_be_completed_after_a_power_loss() {
    tell_all(Commits::is_left_by_the_dead);
    for bug in [Bug::BeginUnsynced, Bug::StagesUnsynced] {
        find((bug, 1), 1000, Commits::is_left_by_the_dead);
    }
}

#[test]
fn a_batch_committed_during_a_power_loss_is_in_the_log_once_after_repetition() {
    tell_all(Commits::is_run_again);
    for bug in [Bug::EarlierWins, Bug::RefuseTorn] {
        find((bug, 1), 300, Commits::is_run_again);
    }
    tell_all(Commits::is_begun);
    tell_all(Commits::is_over);
}

#[test]
fn every_committed_row_is_in_the_log_exactly_once() {
    hold_through(crashes() / 20, tell::<Commits>);
}

#[test]
fn the_simulator_finds_planted_bugs_of_commits() {
    find_each(
        &[
            (Bug::ForgetMarkers, 1),
            (Bug::FinishEarly, 1),
            (Bug::ReplaceManifest, 103),
            (Bug::RetireMarkers, 14),
            (Bug::TrustNumbers, 1),
            (Bug::TrustGone, 1),
            (Bug::EarlierWins, 35),
            (Bug::RefuseTorn, 1),
            (Bug::BeginUnsynced, 88),
            (Bug::StagesUnsynced, 55),
        ],
        CRASHES_TO_FIND / 4,
        tell::<Commits>,
    );
}

#[test]
fn every_row_committed_to_a_partition_log_is_there_exactly_once() {
    hold_through(crashes() / 80, tell::<Commits<PartitionLog>>);
}

#[test]
fn tasks_that_begin_at_once_share_one_page_with_the_writer() {
    tell_all(Commits::begun_at_once);
    find((Bug::ReplacePage, 1), 100, Commits::begun_at_once);
}

#[test]
fn the_simulator_finds_planted_bugs_of_commits_to_a_partition_log() {
    find_each(
        &[
            (Bug::MarkerFirst, 2),
            (Bug::MarkerLater, 65),
            (Bug::ForgetMarkers, 1),
            (Bug::FinishEarly, 1),
            (Bug::ForgetIntent, 86),
            (Bug::ReplaceManifest, 4),
            (Bug::TrustNumbers, 1),
            (Bug::TrustGone, 7),
            (Bug::EarlierWins, 2),
            (Bug::RefuseTorn, 1),
            (Bug::StagesUnsynced, 8),
        ],
        CRASHES_TO_FIND / 20,
        tell::<Commits<PartitionLog>>,
    );
}
