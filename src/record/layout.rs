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

impl From<kafka::Apart> for Layout {
    #[inline]
    fn from(layout: kafka::Apart) -> Layout {
        Layout::Kafka(kafka::Layout::Apart(layout))
    }
}

impl From<kafka::InBatch> for Layout {
    #[inline]
    fn from(layout: kafka::InBatch) -> Layout {
        Layout::Kafka(kafka::Layout::InBatch(layout))
    }
}

impl From<rocketmq::Layout> for Layout {
    #[inline]
    fn from(layout: rocketmq::Layout) -> Layout {
        Layout::RocketMq(layout)
    }
}

impl Layout {
    /// Bytes of the record; of one in Kafka's form, apart from its batch.
    #[inline]
    pub fn total_len(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => layout.total_len,
            Layout::Kafka(layout) => layout.total_len(),
        }
    }

    /// Where the record ends: the bytes that [`super::Row::with_layout`] needs.
    #[inline]
    pub fn end(&self) -> u32 {
        match self {
            Layout::RocketMq(layout) => layout.total_len,
            Layout::Kafka(layout) => layout.end(),
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
            Layout::Kafka(layout) => layout.value_len(),
        }
    }

    /// Bytes of keys and properties as stored, at most.
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
