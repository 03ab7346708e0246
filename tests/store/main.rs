//! One suite for every engine, and random operations that must give the same results on all.
//!
//! A test takes a [`bed::Bed`]: an engine with small files, so that even short tests roll them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

/// Defines tests that each engine must pass.
macro_rules! suite {
    ($($(#[$doc:meta])* fn $name:ident($bed:ident) $body:block)*) => {
        $($(#[$doc])* fn $name($bed: &mut crate::bed::Bed) $body)*
        each_engine!($($name)*);
    };
}

/// The engines that the suite runs on, one per line.
macro_rules! each_engine {
    ($($name:ident)*) => {
        on_engine!(memory, crate::bed::Kind::Memory, $($name)*);
        on_engine!(commit_log, crate::bed::Kind::CommitLog, $($name)*);
    };
}

macro_rules! on_engine {
    ($engine:ident, $kind:expr, $($name:ident)*) => {
        mod $engine {
            $(#[test]
            fn $name() {
                super::$name(&mut crate::bed::Bed::new($kind));
            })*
        }
    };
}

mod batches;
mod bed;
mod checks;
mod damage;
mod damage_sweep;
mod damaged_queues;
mod draw;
mod faults;
mod folder;
mod full;
mod fuzz;
mod fuzz_targets;
mod golden;
mod kept;
mod keyless;
mod later;
mod lifecycle;
mod missing;
mod model;
mod offline;
mod pool;
mod processes;
mod progress;
mod query;
mod read;
mod readonly;
mod recovery;
mod repair;
mod repair_sweep;
mod retention;
mod roll;
mod rules;
mod scan;
mod send;
mod state_page;
mod stats;
mod threads;
mod topics;
mod world;
