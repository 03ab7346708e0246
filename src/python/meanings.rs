//! What the same call means in different engines.

use pyo3::prelude::*;

/// What names, times and messages mean in a store.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Meanings {
    /// Whether times never decrease in a queue.
    append_times: bool,
    /// Whether positions of the log mean the same when the store is opened again.
    lasting_positions: bool,
    /// Whether messages can have no body, any bytes as key, and headers, as in Kafka.
    in_kafka_form: bool,
    /// What topics of retries begin with; the name of a group follows.
    retry_prefix: String,
    /// What topics of dead letters begin with; the name of a group follows.
    dead_prefix: String,
}

impl From<&crate::Meanings> for Meanings {
    fn from(meanings: &crate::Meanings) -> Meanings {
        Meanings {
            append_times: meanings.append_times,
            lasting_positions: meanings.lasting_positions,
            in_kafka_form: meanings.in_kafka_form,
            retry_prefix: meanings.retry_topic(""),
            dead_prefix: meanings.dead_topic(""),
        }
    }
}
