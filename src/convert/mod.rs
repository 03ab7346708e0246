//! Conversion of a store to the files of another engine.
//!
//! ```text
//!   DST.converting/         while it runs
//!     state.json              what is converted, and how
//!     store/                  the target, which becomes DST when it is complete
//! ```
//!
//! [`names`] decides how topics are called in the target, [`state`] keeps what must not change when
//! a conversion is resumed, and [`copy`] reads the source in an order that suits the target.
//!
//! The progress of a conversion is not recorded: the target shows it. The copy of a queue continues
//! at the queue's next offset in the target, or after the old offset that its last message there
//! keeps. So the process may be killed at any point.

mod apart;
mod copy;
mod names;
mod sink;
mod state;

pub use names::NameMap;

use self::apart::check_apart;
use self::copy::Lanes;
use self::names::Renamed;
use self::sink::Sink;
use self::state::{Place, State};
use crate::engine::{Durability, Engine};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::{EngineKind, Isolation, Mode, Options, TimestampType};
use crate::store::Store;
use std::path::Path;

/// Property of a converted message whose offset has changed: the offset that it had.
pub const OFFSET: &str = "FOREBAY_OFFSET";
/// Property of a converted message that was not stored when it was made: the store time in ms. A
/// partition log keeps one time only.
pub const STORE_TIME: &str = "FOREBAY_STORE_TIME";

/// What to convert, and how.
#[derive(Clone, Debug)]
pub struct ConvertSpec {
    /// The engine of the target.
    pub engine: EngineKind,
    /// Options of the target.
    pub options: Options,
    /// Topics; `None`: all except the systems' own.
    pub topics: Option<Vec<String>>,
    /// Names of topics in the target, by the name in the source. Others are named by rule.
    pub names: NameMap,
    /// Whether messages may get other offsets.
    pub renumber: bool,
    /// Which messages of transactions are converted.
    pub isolation: Isolation,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Messages that this call has copied.
    pub messages: u64,
    /// Names in the source and in the target, of all topics.
    pub topics: Vec<(String, String)>,
    /// Topics of the systems themselves that were left out, and how many offsets they have.
    pub left_out: Vec<(String, u64)>,
    /// Damaged places of the source whose messages could not be read.
    pub damaged: u64,
    /// Whether an earlier call had begun.
    pub resumed: bool,
    /// Whether the target is complete; false if `progress` has stopped the call.
    pub complete: bool,
}

/// Converts the store at `source` into a new one at `target`, or continues to.
///
/// Converts the messages that the source has when the call begins. `progress` receives the offsets
/// done and their total; if it returns false, the call stops, and another can continue.
///
/// # Errors
///
/// [`Error::Exists`] if there is anything at `target`; [`Error::InvalidOption`] if the source has
/// the target's form already, if one directory is within the other, if its offsets cannot be kept
/// and may not change, or if an unfinished conversion has other settings; errors of opening,
/// reading and writing.
pub fn convert_store(
    source: &Path,
    target: &Path,
    spec: &ConvertSpec,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Converted> {
    let machine = Machine::real();
    let disk = &*machine.disk;
    check_apart(source, target)?;
    let place = Place::of(target)?;
    if let Some(done) = place.finished(disk)? {
        return Ok(done);
    }
    let store = open_source(&machine, source, spec)?;
    let engine = store.engine()?;
    check_engines(engine, spec)?;
    engine.refresh(None)?;
    let (chosen, left_out) = names::choose(engine, spec.topics.as_deref())?;
    let state = State::new(source, spec);
    let begun = place.begun(disk, &state)?;
    let resumed = begun.is_some();
    let topics = match begun {
        Some(topics) => topics,
        None => names::map(&chosen, &spec.names, spec.engine)?,
    };
    let lanes = Lanes::of(engine, &topics, machine.clock.now_ms())?;
    if !resumed {
        if !spec.renumber {
            lanes.check_starts()?;
            if !copy::check_dense(engine, &lanes, progress)? {
                return Ok(Converted::default());
            }
        }
        place.begin(disk, &state, &topics)?;
    }
    let mut converted = Converted {
        topics,
        left_out,
        resumed,
        ..Converted::default()
    };
    let options = Options {
        mode: Mode::Append,
        engine: Some(spec.engine),
        ..spec.options.clone()
    };
    let into = Store::open_on(&machine, &place.store(), options)?;
    let copied = copy_all(engine, &into, lanes, spec, progress, &mut converted);
    // Closing makes the copied messages durable, even if the copy failed.
    let closed = into.close();
    let complete = copied?;
    closed?;
    converted.damaged = engine.report().damaged();
    converted.complete = complete;
    if complete {
        place.finish(disk)?;
    }
    store.close()?;
    Ok(converted)
}

fn open_source(machine: &Machine, source: &Path, spec: &ConvertSpec) -> Result<Store> {
    let read = |isolation| {
        let options = Options {
            mode: Mode::Read,
            isolation,
            ..Options::default()
        };
        Store::open_on(machine, source, options)
    };
    let store = read(None)?;
    match store.engine()?.meanings().in_kafka_form {
        true => {
            store.close()?;
            read(Some(spec.isolation))
        }
        false => Ok(store),
    }
}

fn check_engines(source: &dyn Engine, spec: &ConvertSpec) -> Result<()> {
    let kind = format!("{:?}", spec.engine.word());
    match spec.engine {
        EngineKind::Memory => {
            let rule = "be \"commitlog\" or \"partitionlog\"";
            Err(Error::must("engine", kind, rule))
        }
        same if source.meanings().kind == same => {
            let reason = "the source has this form already";
            Err(Error::option("engine", kind, reason))
        }
        _ => check_times(spec),
    }
}

/// Refuses an option with which the target would lose the times when messages were made.
fn check_times(spec: &ConvertSpec) -> Result<()> {
    let timestamps = spec.options.message_timestamp_type;
    if timestamps != Some(TimestampType::LogAppendTime) {
        return Ok(());
    }
    let value = format!("{:?}", TimestampType::LogAppendTime.word());
    let reason = "a conversion keeps the times of messages";
    Err(Error::option("message_timestamp_type", value, reason))
}

/// Copies all messages. Returns whether all were copied.
fn copy_all(
    source: &dyn Engine,
    target: &Store,
    mut lanes: Lanes,
    spec: &ConvertSpec,
    progress: &mut dyn FnMut(u64, u64) -> bool,
    converted: &mut Converted,
) -> Result<bool> {
    let engine = target.engine()?;
    for topic in &lanes.topics {
        engine.create_topic(&topic.target, topic.queues, Durability::Written)?;
    }
    lanes.resume(source, engine, spec.renumber)?;
    let targets = lanes.topics.iter().map(|topic| &*topic.target);
    let renamed = Renamed::new(&converted.topics, spec.engine);
    let mut sink = Sink::new(engine, (targets, renamed), spec)?;
    let complete = match source.meanings().kind {
        EngineKind::CommitLog => copy::by_position(source, &mut lanes, &mut sink, progress)?,
        _ => copy::by_time(source, &mut lanes, &mut sink, progress)?,
    };
    sink.append()?;
    engine.flush(&mut || true)?;
    converted.messages = sink.messages();
    Ok(complete)
}

/// The error for a queue whose offsets cannot be kept.
fn gap(queue: u32, topic: &str, offset: u64) -> Error {
    let reason = format!(
        "queue {queue} of {topic} has no message at offset {offset}, so offsets cannot be kept; \
         with renumber messages get new ones and keep the old as the property {OFFSET}"
    );
    Error::Gap {
        topic: topic.to_owned(),
        queue,
        offset,
        reason,
    }
}
