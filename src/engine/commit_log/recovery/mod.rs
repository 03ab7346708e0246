//! Opening: a stair. Each step takes what the steps above it have found, and hands its own on.
//!
//! ```text
//!   find          lock, permit, sizes and files, small tables                        -> Found
//!   begin         where the walk begins, and why                                     -> Begin
//!   mark_running  a halt from here on shows: abort and page, durable
//!   walk          the log is walked, queues and index are brought up to its end      -> Walked
//!     load          the queues as their files have them                              -> Loaded
//!     confirm       the marks hold, or the walk begins where nothing can be missed   -> Begin
//!     plan_index    what of the index is believed                                    -> KeyPlan
//!     walk_from     each record to its place, each key into the index                -> Placed
//!     ...           queues and index are cut to the log, losses are named
//!   trim          what is kept becomes durable, what lies after the end is erased    -> Trimmed
//!   assemble      the parts of an open store; the page begins an epoch               -> Opened
//! ```
//!
//! A reader takes the same steps and changes nothing: it takes no lock, leaves no mark, and what
//! queues lack stays in memory. Beside a live writer it goes from `find` to `follow` at once.
//!
//! The order makes a crash harmless. `abort` and the page say that the store is being recovered,
//! durably, before anything else changes. The page begins an epoch when the log is final on the
//! disk. A crash in between leaves a store that the next opening recovers again. What the walk puts
//! into queues and index need not be durable for that: the settled mark stays below it until a full
//! pass has synced it.
//!
//! An error ends the opening with its cause: what cannot be read is neither a hole nor the end of
//! the log.

pub mod assemble;
pub mod begin;
pub mod confirm;
pub mod find;
pub mod geometry;
pub mod load;
pub mod mark;
pub mod open;
pub mod place;
pub mod rebuild;
pub mod reindex;
pub mod trim;
