//! Encoded records of one topic, in the form of the store that they are meant for.

use super::common::{Contents, Copied, Draft, HostBytes, RecordStyle};
use super::rocketmq;
use super::row::Row;
use crate::error::Result;
use std::net::{Ipv4Addr, SocketAddr};

/// Encoded records of one topic, ready to be sealed and copied into a log.
///
/// A batch keeps its memory when it is cleared, so that a sender that reuses one does not allocate.
#[derive(Debug)]
pub enum Batch {
    /// In RocketMQ's form.
    RocketMq(rocketmq::Batch),
}

impl Batch {
    /// An empty batch in RocketMQ's form.
    #[inline]
    pub fn in_rocketmq_form(style: RecordStyle) -> Batch {
        Batch::RocketMq(rocketmq::Batch::new(style))
    }

    /// An empty batch for a stage: records with a checksum and without a host, which the store that
    /// takes them up puts in its own form.
    pub fn of_stage(value_len_max: usize) -> Batch {
        Batch::in_rocketmq_form(RecordStyle {
            host: HostBytes::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            checksum: true,
            max_message_size: value_len_max,
        })
    }

    /// Becomes `empty`, and keeps its memory where the two are of one form.
    #[inline]
    pub fn renew(&mut self, empty: &Batch) {
        match (self, empty) {
            (Batch::RocketMq(batch), Batch::RocketMq(empty)) => batch.renew(empty),
        }
    }

    /// The records in RocketMQ's form, for who has no other.
    #[inline]
    pub fn rocketmq(&self) -> &rocketmq::Batch {
        let Batch::RocketMq(batch) = self;
        batch
    }

    /// [`Batch::rocketmq`], to be sealed.
    #[inline]
    pub fn rocketmq_mut(&mut self) -> &mut rocketmq::Batch {
        let Batch::RocketMq(batch) = self;
        batch
    }

    /// Address that the records name as their store's.
    pub fn host(&self) -> HostBytes {
        match self {
            Batch::RocketMq(batch) => batch.style().host,
        }
    }

    /// An empty batch like this one.
    pub fn another(&self) -> Batch {
        match self {
            Batch::RocketMq(batch) => Batch::in_rocketmq_form(*batch.style()),
        }
    }

    /// Forgets the records, keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        match self {
            Batch::RocketMq(batch) => batch.clear(),
        }
    }

    /// Number of records.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Batch::RocketMq(batch) => batch.rows().len(),
        }
    }

    /// Whether there are no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The queue of a record, counted in the order of [`Batch::push`].
    #[inline]
    pub fn queue(&self, row: usize) -> Option<u32> {
        match self {
            Batch::RocketMq(batch) => batch.rows().get(row).map(|row| row.queue),
        }
    }

    /// The time by the sender's clock when the last row was encoded, in ms.
    #[inline]
    pub fn clock_ms(&self) -> i64 {
        match self {
            Batch::RocketMq(batch) => batch.clock_ms(),
        }
    }

    /// Bytes of all records together.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        match self {
            Batch::RocketMq(batch) => batch.encoded_len(),
        }
    }

    /// The records back to back.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Batch::RocketMq(batch) => batch.bytes(),
        }
    }

    /// Memory that the batch holds on to.
    #[inline]
    pub fn capacity(&self) -> usize {
        match self {
            Batch::RocketMq(batch) => batch.capacity(),
        }
    }

    /// Encodes one message for `queue` of `topic`, born at `born_timestamp` where the draft does
    /// not say otherwise. On an error the batch is as it was.
    ///
    /// # Errors
    ///
    /// [`InvalidTopic`](crate::Error::InvalidTopic), [`TooLarge`](crate::Error::TooLarge) and
    /// [`InvalidOption`](crate::Error::InvalidOption), by the checks of the format in its order:
    /// length of the topic, body, properties, record.
    #[inline]
    pub fn push(
        &mut self,
        topic: &str,
        queue: u32,
        draft: &Draft<'_>,
        born_timestamp: i64,
    ) -> Result<()> {
        match self {
            Batch::RocketMq(batch) => batch.push(topic, queue, draft, born_timestamp),
        }
    }

    /// [`Batch::push`] of a message that gets a unique id.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`].
    #[inline]
    pub fn push_with_id(
        &mut self,
        topic: &str,
        queue: u32,
        draft: &Draft<'_>,
        born_timestamp: i64,
    ) -> Result<()> {
        match self {
            Batch::RocketMq(batch) => batch.push_with_id(topic, queue, draft, born_timestamp),
        }
    }

    /// Adds a record that was staged, and checked, for `queue` of its topic; `with_id`: it gets a
    /// unique id.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`].
    pub fn push_staged(
        &mut self,
        topic: &str,
        queue: u32,
        staged: &Row<'_>,
        with_id: bool,
        clock_ms: i64,
    ) -> Result<()> {
        match (self, staged) {
            (Batch::RocketMq(batch), Row::RocketMq(staged)) => {
                batch.push_staged(topic, queue, staged, with_id, clock_ms)
            }
        }
    }

    /// Adds a copy of a record: its body, flag, born time and host, with what `to` has instead.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`]. The batch is then as it was.
    pub fn push_copy(&mut self, of: &Row<'_>, to: &Copied<'_>) -> Result<()> {
        match (self, of) {
            (Batch::RocketMq(batch), Row::RocketMq(of)) => batch.push_copy(of, to),
        }
    }

    /// The contents of the record whose bytes begin at `start` of the batch, the last one that was
    /// encoded, by what it was made of.
    pub fn contents_from(&self, start: usize, draft: &Draft<'_>) -> Contents {
        match self {
            Batch::RocketMq(batch) => batch.contents_from(start, draft),
        }
    }

    /// Finishes a record for its place and returns its bytes; none where there is no such record.
    /// May be called again for another place.
    #[inline]
    pub fn seal(&mut self, row: usize, queue_offset: u64, position: u64, store_ts: i64) -> &[u8] {
        match self {
            Batch::RocketMq(batch) => match batch.rows().get(row).copied() {
                Some(row) => batch.seal(row, queue_offset, position, store_ts),
                None => &[],
            },
        }
    }

    /// Finishes all records as ones that lie back to back from `position` on, each at offset 0 of
    /// its queue and stored when the last one was encoded; returns them.
    pub fn seal_all(&mut self, position: u64) -> &[u8] {
        match self {
            Batch::RocketMq(batch) => batch.seal_all(position),
        }
    }
}
