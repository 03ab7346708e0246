//! Classes whose objects Forebay alone makes. Calling such a class raises an error that names the
//! call or attribute that returns its objects; Python's own error would only say that instances
//! cannot be created.

use super::arrow::Scan;
use super::consumer::Consumer;
use super::conversion::Conversion;
use super::damage::Damage;
use super::groups::GroupQueue;
use super::message::Message;
use super::producer::Producer;
use super::read_batch::ReadBatch;
use super::report::{Compaction, Recovery, Repair, RepairStep, Verification};
use super::sent::{BatchResult, SendResult};
use super::stats::{Latency, Stats, WriterStats};
use super::store::Store;
use super::tail::Tail;
use super::ticket::{BatchTicket, Ticket};
use super::topic::{Queue, Topic};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

macro_rules! made_by {
    ($($class:ident: $origin:literal;)+) => {
        $(#[pymethods]
        impl $class {
            #[new]
            #[pyo3(signature = (*_given, **_named), text_signature = None)]
            fn refused(
                _given: &Bound<'_, PyTuple>,
                _named: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<$class> {
                let name = stringify!($class);
                let text = format!("{name} cannot be called: get one from {}", $origin);
                Err(PyTypeError::new_err(text))
            }
        })+
    };
}

made_by! {
    BatchResult: "Producer.send_batch";
    BatchTicket: "Producer.send_batch_nowait";
    Compaction: "Store.compact";
    Consumer: "Store.consumer";
    Conversion: "forebay.convert";
    Damage: "Store.damage";
    GroupQueue: "Store.groups";
    Latency: "Store.stats";
    Message: "Store.get";
    Producer: "Store.producer";
    Queue: "Store.topics";
    ReadBatch: "Store.read";
    Recovery: "Store.recovery";
    Repair: "Store.repair";
    RepairStep: "Store.repair";
    Scan: "Store.scan";
    SendResult: "Store.send";
    Stats: "Store.stats";
    Store: "forebay.open";
    Tail: "Store.tail";
    Ticket: "Producer.send_nowait";
    Topic: "Store.topics";
    Verification: "Store.verify";
    WriterStats: "Store.stats";
}
