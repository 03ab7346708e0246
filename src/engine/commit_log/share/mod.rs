//! A store that several processes write: `mode="share"`.
//!
//! ```text
//!   each process    reads as beside a running writer (`read::follow`), and appends under a lock
//!                   that all share (`service::shared_lock`); first it walks what others have
//!                   published since its last append (`append`, `log::append::shared`)
//!   one of them     also runs the services (`leader`): it dispatches, flushes, makes full passes,
//!                   removes and seals log files, and takes up commits (`duties`); when it dies or
//!                   leaves, another one recovers the store and takes over (`election`)
//! ```
//!
//! A thread that waits for the disk, or for messages to be dispatched, asks the leader through the
//! state page and sleeps on a word there. While it waits, it checks whether the leader is alive.

mod append;
mod core;
mod duties;
mod election;
mod leader;
mod offsets;
mod open;
#[cfg(test)]
mod stepped;
mod topics;

pub use core::Core;
pub use open::Share;
