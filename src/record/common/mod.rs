//! Shared by records of every form. [`draft`]: what a sender gives. [`check`]: rules for it.
//! [`names`]: names with a special meaning. [`coded`]: values that are not text. [`style`]: what
//! the records of a store share. [`known`] and [`labels`]: keys, tag and properties of a record.
//! [`flaw`]: why bytes are not a record. [`contents`]: a fingerprint of the rows of a batch.
//! [`id`]: message ids. [`room`]: memory for batches.

pub mod check;
pub mod coded;
pub mod contents;
pub mod draft;
pub mod flaw;
pub mod hash;
pub mod id;
pub mod known;
pub mod labels;
pub mod names;
pub mod room;
pub mod style;

pub use contents::Contents;
pub use draft::{Copied, Draft};
pub use flaw::Flaw;
pub use hash::java_hash;
pub use known::Known;
pub use labels::Labels;
pub use names::PropertyKind;
pub use style::{HostBytes, RecordStyle};
