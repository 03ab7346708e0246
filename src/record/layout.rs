//! The places of the parts of a record, in any form.

use super::rocketmq;

/// The places of the parts of one record, relative to its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Of a record in RocketMQ's form.
    RocketMq(rocketmq::Layout),
}

impl From<rocketmq::Layout> for Layout {
    #[inline]
    fn from(layout: rocketmq::Layout) -> Layout {
        Layout::RocketMq(layout)
    }
}

impl Layout {
    /// Bytes of the record.
    #[inline]
    pub fn total_len(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => layout.total_len,
        }
    }

    /// First byte of the body as stored.
    #[inline]
    pub fn body_at(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => layout.body_at,
        }
    }

    /// Bytes of the body as stored.
    #[inline]
    pub fn body_len(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => layout.body_len,
        }
    }

    /// Bytes of the properties as stored.
    #[inline]
    pub fn properties_len(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => u32::from(layout.properties_len),
        }
    }

    /// Whether the body is compressed.
    #[inline]
    pub fn is_compressed(&self) -> bool {
        match self {
            Layout::RocketMq(layout) => layout.compressed,
        }
    }
}
