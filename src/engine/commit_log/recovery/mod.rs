//! Opening a store, in steps. Each step takes the results of earlier steps and passes on its own.
//!
//! ```text
//!   find          lock, permit, sizes and files, small tables                        -> Found
//!   begin         where the walk begins, and why                                     -> Begin
//!   mark_running  durably marks the store as running, in `abort` and the state page
//!   lengthen      gives truncated log files their length again
//!   walk_later    takes the saved offsets of a store that was closed properly        -> Walked
//!   walk          otherwise: walks the log, brings queues and index up to its end    -> Walked
//!     load          loads the queues and their bounds from their files               -> Loaded
//!     confirm       checks the marks; if wrong, walks from where nothing is missed   -> Begin
//!     plan_index    decides which index files are valid                              -> KeyPlan
//!     walk_from     puts each record into its queue and each key into the index      -> Placed
//!     ...           cuts queues and index to the log
//!     name_losses   finds the messages that damage has cost
//!   trim          makes the log durable and erases the bytes after its end           -> Trimmed
//!   assemble      builds the parts of an open store; the page begins an epoch        -> Opened
//! ```
//!
//! A reader takes the same steps and changes nothing: it takes no lock, leaves no mark, and keeps
//! missing queue entries in memory. If another process is writing the store, it goes from `find`
//! directly to `follow`.
//!
//! The order makes a crash harmless. Before anything else changes, `abort` and the page durably
//! state that the store is being recovered. The page begins an epoch when the log is final on the
//! disk. After a crash in between, the next opening recovers the store again. The entries that the
//! walk adds to queues and index need not be durable for that: the mark of the full pass stays
//! below them until a full pass has synced them.
//!
//! An error ends the opening. Bytes that cannot be read are neither a hole nor the end of the log.

pub mod assemble;
pub mod begin;
pub mod confirm;
pub mod find;
pub mod geometry;
pub mod later;
pub mod lengthen;
pub mod load;
pub mod losses;
pub mod mark;
pub mod open;
pub mod place;
pub mod rebuild;
pub mod reindex;
pub mod trim;
