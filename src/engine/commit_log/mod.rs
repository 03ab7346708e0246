//! The commit log engine.
use super::Engine;
use crate::error::{Error, Result};
use crate::options::Options;
use std::path::Path;

pub struct CommitLog;

impl CommitLog {
    pub fn open(_path: &Path, _options: &Options) -> Result<Box<dyn Engine>> {
        Err(Error::Unsupported {
            what: "the commit log engine".to_owned(),
        })
    }
}
