//! Arrow: scans are exported as record batches, and record batches are imported as messages.
//!
//! | file | what it holds |
//! |---|---|
//! | [`schema`] | the columns, their names and types |
//! | [`source`] | where a scan's records come from: queues, the log, or the index |
//! | [`stream`] | records to batches, chunk by chunk |
//! | `chain` | streams that are read one after another |
//! | `columns`, `text`, `body` | one builder per kind of column |
//! | [`ffi`] | the C structs of Arrow's streams and arrays |
//! | [`import`] | batches to messages |
//! | `rows` | the columns of a batch to import, read by row |
//! | [`sink`] | batches with the columns of Spark's Kafka sink to messages |
//!
//! Nothing here knows Python: the bindings wrap the structs of [`ffi`] in capsules.

mod body;
mod buffers;
mod chain;
mod columns;
pub mod ffi;
pub mod import;
mod offsets;
mod rows;
pub mod schema;
pub mod sink;
pub mod source;
pub mod stream;
mod text;
mod values;

pub use chain::{Chain, NextStream};
pub use import::{Imported, send_arrow};
pub use schema::{BodyType, Column, Dialect};
pub use stream::{Interrupt, Stream};
