//! Encoded records of one topic, in the form of the store that they are for.

use super::common::{Contents, Copied, Draft, HostBytes, RecordStyle};
use super::row::Row;
use super::{copy_coded, kafka, rocketmq};
use crate::error::{Error, Result};
/// The form of the records that a store keeps, and what these share.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// RocketMQ's.
    RocketMq(RecordStyle),
    /// Kafka's.
    Kafka(kafka::Form),
}

impl Form {
    /// An empty batch of this form. Does not allocate.
    #[inline]
    pub fn batch(self) -> Batch {
        match self {
            Form::RocketMq(style) => Batch::RocketMq(rocketmq::Batch::new(style)),
            Form::Kafka(form) => Batch::Kafka(kafka::Batch::new(form)),
        }
    }

    /// The store host in the records; Kafka's form has none.
    pub fn host(&self) -> Option<HostBytes> {
        match self {
            Form::RocketMq(style) => Some(style.host),
            Form::Kafka(_) => None,
        }
    }
}

/// Encoded records of one topic, ready to be sealed and copied into a log.
///
/// A cleared batch keeps its memory, so a sender that reuses it does not allocate.
#[derive(Debug)]
pub enum Batch {
    /// In RocketMQ's form.
    RocketMq(rocketmq::Batch),
    /// In Kafka's form.
    Kafka(kafka::Batch),
}

impl Batch {
    /// An empty batch for a stage. Its records have a checksum and no host, and their topics may be
    /// longer than in a commit log; the store that takes them up converts them to its own form.
    pub fn of_stage(value_len_max: usize) -> Batch {
        let style = RecordStyle::of_stage(value_len_max);
        Batch::RocketMq(rocketmq::Batch::new(style).with_long_topics())
    }

    /// Becomes an empty batch of this form, but keeps its memory if it has this form already.
    #[inline]
    pub fn renew(&mut self, form: Form) {
        match (self, form) {
            (Batch::RocketMq(batch), Form::RocketMq(style)) => batch.renew(style),
            (Batch::Kafka(batch), Form::Kafka(form)) => batch.renew(form),
            (batch, form) => *batch = form.batch(),
        }
    }

    /// The records in RocketMQ's form, for callers that know no other.
    #[inline]
    pub fn rocketmq(&self) -> &rocketmq::Batch {
        match self {
            Batch::RocketMq(batch) => batch,
            Batch::Kafka(_) => unreachable!("a store of RocketMQ's form makes no other batch"),
        }
    }

    /// As [`Batch::rocketmq`], mutable.
    #[inline]
    pub fn rocketmq_mut(&mut self) -> &mut rocketmq::Batch {
        match self {
            Batch::RocketMq(batch) => batch,
            Batch::Kafka(_) => unreachable!("a store of RocketMQ's form makes no other batch"),
        }
    }

    /// The records in Kafka's form; `None` if they have another.
    #[inline]
    pub fn kafka(&self) -> Option<&kafka::Batch> {
        match self {
            Batch::Kafka(batch) => Some(batch),
            Batch::RocketMq(_) => None,
        }
    }

    /// As [`Batch::kafka`], mutable.
    #[inline]
    pub fn kafka_mut(&mut self) -> Option<&mut kafka::Batch> {
        match self {
            Batch::Kafka(batch) => Some(batch),
            Batch::RocketMq(_) => None,
        }
    }

    /// The form of its records.
    #[inline]
    pub fn form(&self) -> Form {
        match self {
            Batch::RocketMq(batch) => Form::RocketMq(*batch.style()),
            Batch::Kafka(batch) => Form::Kafka(*batch.form()),
        }
    }

    /// Removes the records but keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        match self {
            Batch::RocketMq(batch) => batch.clear(),
            Batch::Kafka(batch) => batch.clear(),
        }
    }

    /// Number of records.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Batch::RocketMq(batch) => batch.rows().len(),
            Batch::Kafka(batch) => batch.rows().len(),
        }
    }

    /// Whether there are no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The queue of a record, by its index in the order of [`Batch::push`].
    #[inline]
    pub fn queue(&self, row: usize) -> Option<u32> {
        match self {
            Batch::RocketMq(batch) => batch.rows().get(row).map(|row| row.queue),
            Batch::Kafka(batch) => batch.rows().get(row).map(|row| row.queue),
        }
    }

    /// The sender's clock when the last record was encoded, in ms.
    #[inline]
    pub fn clock_ms(&self) -> i64 {
        match self {
            Batch::RocketMq(batch) => batch.clock_ms(),
            Batch::Kafka(batch) => batch.clock_ms(),
        }
    }

    /// Total bytes of all records.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        match self {
            Batch::RocketMq(batch) => batch.encoded_len(),
            Batch::Kafka(batch) => batch.encoded_len(),
        }
    }

    /// The records, one after another.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Batch::RocketMq(batch) => batch.bytes(),
            Batch::Kafka(batch) => batch.parts().first().map_or(&[], |part| part.bytes()),
        }
    }

    /// Bytes of memory that the batch holds.
    #[inline]
    pub fn capacity(&self) -> usize {
        match self {
            Batch::RocketMq(batch) => batch.capacity(),
            Batch::Kafka(batch) => batch.capacity(),
        }
    }

    /// Encodes one message for `queue` of `topic`. `born_timestamp` applies if the draft has none.
    /// After an error the batch is unchanged.
    ///
    /// # Errors
    ///
    /// [`InvalidTopic`](crate::Error::InvalidTopic), [`TooLarge`](crate::Error::TooLarge) and
    /// [`InvalidOption`](crate::Error::InvalidOption), from the checks of the format in its order:
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
            Batch::Kafka(batch) => batch.push(queue, draft, born_timestamp),
        }
    }

    /// As [`Batch::push`], and gives the message a unique id.
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
            Batch::Kafka(batch) => batch.push(queue, draft, born_timestamp),
        }
    }

    /// Adds a staged and checked record for `queue` of its topic. `with_id`: gives it a unique id.
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
            (Batch::Kafka(batch), Row::RocketMq(_)) => {
                let to = Copied {
                    topic,
                    queue,
                    without: &[],
                    with: &[],
                    reconsume_times: 0,
                    clock_ms,
                };
                copy_coded::to_kafka(batch, staged, &to)
            }
            _ => Err(other_form()),
        }
    }

    /// Adds a copy of a record of either form: its body, keys, properties and born time, in
    /// RocketMQ's form flag and host too, with the changes in `to`.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`]. The batch is then unchanged.
    pub fn push_copy(&mut self, of: &Row<'_>, to: &Copied<'_>) -> Result<()> {
        match (self, of) {
            (Batch::RocketMq(batch), Row::RocketMq(of)) => batch.push_copy(of, to),
            (Batch::RocketMq(batch), Row::Kafka(_)) => copy_coded::to_rocketmq(batch, of, to),
            (Batch::Kafka(batch), Row::RocketMq(_)) => copy_coded::to_kafka(batch, of, to),
            (Batch::Kafka(batch), Row::Kafka(of)) => batch.push_copy(of, to),
        }
    }

    /// The contents of the last encoded record, which begins at byte `start` of the batch and was
    /// made from `draft`.
    pub fn contents_from(&self, start: usize, draft: &Draft<'_>) -> Contents {
        match self {
            Batch::RocketMq(batch) => batch.contents_from(start, draft),
            Batch::Kafka(_) => Contents::default(),
        }
    }

    /// Completes a record for its place and returns its bytes; empty if there is no such record.
    /// May be called again for another place.
    #[inline]
    pub fn seal(&mut self, row: usize, queue_offset: u64, position: u64, store_ts: i64) -> &[u8] {
        match self {
            Batch::RocketMq(batch) => match batch.rows().get(row).copied() {
                Some(row) => batch.seal(row, queue_offset, position, store_ts),
                None => &[],
            },
            Batch::Kafka(_) => &[],
        }
    }

    /// Completes all records as if they were stored one after another from `position` on, each at
    /// offset 0 of its queue, at the time when the last one was encoded. Returns their bytes.
    pub fn seal_all(&mut self, position: u64) -> &[u8] {
        match self {
            Batch::RocketMq(batch) => batch.seal_all(position),
            Batch::Kafka(_) => &[],
        }
    }
}

#[cold]
fn other_form() -> Error {
    Error::Unsupported {
        what: "copying a record to a store of another form".to_owned(),
    }
}
