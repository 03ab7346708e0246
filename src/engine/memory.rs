//! The memory engine.
use super::Engine;
use crate::error::{Error, Result};
use crate::options::Options;

pub struct Memory;

impl Memory {
    pub fn open(_options: &Options) -> Result<Box<dyn Engine>> {
        Err(Error::Unsupported {
            what: "the memory engine".to_owned(),
        })
    }
}
