//! The places of the parts of a record, in any form.

use super::{kafka, rocketmq};

/// The places of the parts of one record, relative to its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Of a record in RocketMQ's form.
    RocketMq(rocketmq::Layout),
    /// Of a record in Kafka's form.
    Kafka(kafka::Layout),
}

impl From<kafka::Layout> for Layout {
    #[inline]
    fn from(layout: kafka::Layout) -> Layout {
        Layout::Kafka(layout)
    }
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
            Layout::Kafka(layout) => layout.total_len,
        }
    }

    /// First byte of the body as stored.
    #[inline]
    pub fn body_at(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => layout.body_at,
            Layout::Kafka(layout) => layout.value_at(),
        }
    }

    /// Bytes of the body as stored.
    #[inline]
    pub fn body_len(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => layout.body_len,
            Layout::Kafka(layout) => layout.value_len,
        }
    }

    /// Bytes of keys and properties as stored.
    #[inline]
    pub fn properties_len(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => u32::from(layout.properties_len),
            Layout::Kafka(layout) => layout.labels_len(),
        }
    }

    /// Whether the body is compressed.
    #[inline]
    pub fn is_compressed(&self) -> bool {
        match self {
            Layout::RocketMq(layout) => layout.compressed,
            Layout::Kafka(_) => false,
        }
    }
}
