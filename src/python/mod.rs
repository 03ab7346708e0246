//! The private module `forebay._forebay`: it converts arguments, detaches from the interpreter, and
//! maps errors. The core does the work.

mod archive;
mod arrow;
mod batch;
mod chain;
mod clock;
mod compact;
mod consumer;
mod consumer_iterator;
mod consumer_settling;
mod conversion;
mod convert;
mod damage;
mod draft;
mod edge;
mod errors;
mod fields;
mod groups;
mod handle;
mod joining;
mod loading;
mod log;
mod made;
mod mapping;
mod meanings;
mod message;
mod named;
mod notebook;
mod notices;
mod once;
mod open;
mod options;
mod pause;
mod pickle;
mod places;
mod producer;
mod producer_queue;
mod progress;
mod read_batch;
mod reading;
mod rebuild;
mod report;
mod restore;
mod run;
mod sent;
mod signals;
mod stages;
mod start;
mod stats;
mod store;
mod tail;
mod ticket;
mod topic;
mod upkeep;
mod verify;
mod waiting;

/// The compiled part of Forebay; import `forebay` instead.
#[pyo3::pymodule(gil_used = false)]
mod _forebay {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::archive::{
        Block, BlockScan, BlockTable, QueueEnd, QueueRange, SealedFile, SealedSegment,
        SegmentSurvey, Survey, block_offset_at, block_schema, scan_blocks, sealed_files,
        sealed_segments, survey, survey_segment,
    };
    #[pymodule_export]
    use super::arrow::Scan;
    #[pymodule_export]
    use super::chain::chain_scans;
    #[pymodule_export]
    use super::clock::{ManualClock, clock_moved};
    #[pymodule_export]
    use super::consumer::Consumer;
    #[pymodule_export]
    use super::consumer_iterator::ConsumerIterator;
    #[pymodule_export]
    use super::conversion::{Conversion, convert_store};
    #[pymodule_export]
    use super::damage::Damage;
    #[pymodule_export]
    use super::groups::{GroupQueue, record_offsets};
    #[pymodule_export]
    use super::meanings::{EngineKind, Meanings};
    #[pymodule_export]
    use super::message::{Message, message_from_record};
    #[pymodule_export]
    use super::notices::Notices;
    #[pymodule_export]
    use super::open::open_store;
    #[pymodule_export]
    use super::pause::{Pause, Polled};
    #[pymodule_export]
    use super::places::{
        Bounds, Epochs, Fitted, QueueBounds, QueueOffsets, bounds_below, epochs, fit,
        offsets_between, wait_beyond,
    };
    #[pymodule_export]
    use super::producer::Producer;
    #[pymodule_export]
    use super::read_batch::ReadBatch;
    #[pymodule_export]
    use super::rebuild::{
        IndexKeys, LaidRange, LaidRun, Merged, StoreLock, rebuild_index, rebuild_lay,
        rebuild_merge, rebuild_ranges,
    };
    #[pymodule_export]
    use super::report::{Compaction, Recovery, Repair, RepairStep, Verification};
    #[pymodule_export]
    use super::restore::{scan_again, values_again};
    #[pymodule_export]
    use super::run::Run;
    #[pymodule_export]
    use super::sent::{BatchResult, SendResult};
    #[pymodule_export]
    use super::stages::{
        CommitProgress, Contents, Staged, Stager, close_query, contents_of, discard_stages,
        holds_commit, last_marker, publish_commit, resolve_commit, stage_target, take_commits,
        wait_for_commit, withdraw_commit, writer_of,
    };
    #[pymodule_export]
    use super::stats::{Latency, Stats, WriterStats};
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::tail::{Tail, TailStep};
    #[pymodule_export]
    use super::ticket::{BatchTicket, Ticket};
    #[pymodule_export]
    use super::topic::{Queue, Topic};
    #[pymodule_export]
    use super::verify::{Finding, FoundHole, Stretch, verify_join, verify_parts, verify_stretches};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::loading::load(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
