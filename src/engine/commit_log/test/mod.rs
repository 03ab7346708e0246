//! Tests of parts of a commit log that need a whole store.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod backlog;
mod given;
mod holes;
mod options;
mod prepared;
mod retention;
mod shared;
mod shortage;
