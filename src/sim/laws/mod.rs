//! The laws: what must hold through every crash. Each part runs stories that must keep it, and
//! checks that they find the bugs that would break it.

mod commit_log;
mod commits;
mod consumers;
mod partition_log;
mod sharing;
