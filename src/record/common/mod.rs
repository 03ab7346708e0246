//! What records of every form share. [`draft`] is what a sender gives and [`check`] what it may be,
//! [`names`] have a meaning of their own, [`coded`] is what they hold that is no text, [`style`] is
//! what the records of a store share; [`known`] and [`labels`] are what a record says beside its
//! numbers and its body, [`flaw`] what keeps bytes from being one, [`contents`] tells the rows of a
//! batch from others, [`id`] names a message.

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
pub mod style;

pub use contents::Contents;
pub use draft::{Copied, Draft};
pub use flaw::Flaw;
pub use hash::java_hash;
pub use known::Known;
pub use labels::Labels;
pub use names::PropertyKind;
pub use style::{HostBytes, RecordStyle};
