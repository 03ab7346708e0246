//! What the same call means in different engines.

use super::options::read_engine;
use pyo3::prelude::*;

/// A kind of engine, by the name that the option ``engine`` has for it.
#[pyclass(frozen, eq, module = "forebay._forebay")]
#[derive(Clone, PartialEq)]
pub(crate) struct EngineKind(pub(super) crate::EngineKind);

#[pymethods]
impl EngineKind {
    #[new]
    fn new(name: &str) -> PyResult<EngineKind> {
        read_engine(name).map(EngineKind)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.word()
    }

    /// Whether its stores are directories.
    #[getter]
    fn keeps_files(&self) -> bool {
        self.0.keeps_files()
    }

    /// Whether its stores keep all messages in one log, whose positions are bytes.
    #[getter]
    fn has_one_log(&self) -> bool {
        self.0.has_one_log()
    }

    /// Whether messages can have no body, any bytes as key, and headers, as in Kafka.
    #[getter]
    fn in_kafka_form(&self) -> bool {
        self.0.in_kafka_form()
    }
}

/// What names, times and messages mean in a store.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Meanings {
    /// The kind of its engine.
    kind: EngineKind,
    /// Whether times never decrease in a queue.
    append_times: bool,
    /// Whether positions of the log mean the same when the store is opened again.
    lasting_positions: bool,
    /// Whether messages can have no body, any bytes as key, and headers, as in Kafka.
    in_kafka_form: bool,
    /// Prefix of the topics of retries; the name of a group follows.
    retry_prefix: String,
    /// Prefix of the topics of dead letters; the name of a group follows.
    dead_prefix: String,
}

impl From<&crate::Meanings> for Meanings {
    fn from(meanings: &crate::Meanings) -> Meanings {
        Meanings {
            kind: EngineKind(meanings.kind),
            append_times: meanings.append_times,
            lasting_positions: meanings.lasting_positions,
            in_kafka_form: meanings.in_kafka_form,
            retry_prefix: meanings.retry_topic(""),
            dead_prefix: meanings.dead_topic(""),
        }
    }
}
