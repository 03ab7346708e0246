//! Which errors give a partition up, and that they are kept.

use super::super::work::Known;
use crate::error::{Error, Op};
use std::io;

#[test]
fn a_partition_is_given_up_if_every_pass_would_meet_the_error() {
    let mut known = Known::default();
    known.take(&Error::io(Op::Read, "log", io::ErrorKind::Other.into()));
    assert!(known.why_given_up().is_none());
    let too_long = Error::Unsupported {
        what: "compacting into a file that would be too long".to_owned(),
    };
    for error in [too_long, Error::corrupt("log", 7, "reason")] {
        let mut known = Known::default();
        known.take(&error);
        for _ in 0..2 {
            let why = known.why_given_up().map(|why| why.to_string());
            assert_eq!(why, Some(error.to_string()));
        }
    }
}
