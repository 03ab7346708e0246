//! Settling messages in Python.

use super::consumer::Consumer;
use super::convert::{duration, each, integer, wrong_type};
use super::errors::must;
use super::message::Message;
use super::named;
use crate::{Delivery, Receipt};
use pyo3::prelude::*;

/// The receipt of a message that a consumer delivered.
fn receipt<'a>(message: &'a Bound<'_, Message>) -> PyResult<&'a Receipt> {
    message.get().receipt().ok_or_else(|| undelivered(message))
}

fn several<'py>(messages: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Message>>> {
    let wanted = "a Message or a sequence of them";
    each("messages", messages, wanted, |_, item| {
        let message = item.cast_into::<Message>();
        message.map_err(|error| wrong_type("messages", &error.into_inner(), wanted))
    })
}

fn delivery(message: &Bound<'_, Message>) -> PyResult<Delivery> {
    message.get().delivery().ok_or_else(|| undelivered(message))
}

fn undelivered(message: &Bound<'_, Message>) -> PyErr {
    must("message", message, "be one that a consumer delivered")
}

#[pymethods]
impl Consumer {
    /// Settle one message or several: they are handled.
    ///
    /// Progress moves to the smallest offset that is not settled. It is stored every 5 s, by
    /// `commit` and by `close`, after the messages before it are durable.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError
    ///     If a message was settled before. All others are settled.
    /// OwnershipLostError
    ///     If a message was delivered again since or was taken back by `nack`, its queue has
    ///     another owner, or a consumer of another group or store delivered it. All others are
    ///     settled.
    fn ack(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(message) = messages.cast::<Message>() {
            let receipt = receipt(message)?;
            return Ok(self.ask(py, |core| core.ack([receipt]))??);
        }
        let messages = several(messages)?;
        let receipts: Vec<&Receipt> = messages.iter().map(receipt).collect::<PyResult<_>>()?;
        Ok(self.ask(py, |core| core.ack(receipts))??)
    }

    /// Settle the messages that can be settled without waiting for another thread or process.
    ///
    /// Return the others, and the error of the first one that cannot be settled.
    #[pyo3(name = "_try_ack")]
    fn try_ack<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
    ) -> PyResult<(Vec<Bound<'py, Message>>, Option<PyErr>)> {
        let messages = match messages.cast::<Message>() {
            Ok(message) => vec![message.clone()],
            Err(_) => several(messages)?,
        };
        let receipts: Vec<&Receipt> = messages.iter().map(receipt).collect::<PyResult<_>>()?;
        let (left, settled) = self.call(py, |core| Ok(core.try_ack(receipts)))?;
        let left = left.into_iter().filter_map(|index| messages.get(index));
        Ok((left.cloned().collect(), settled.err().map(PyErr::from)))
    }

    /// Have a message delivered again later.
    ///
    /// With ``order="none"`` the message goes through the topic ``%RETRY%<group>``, after a delay:
    /// by default 10 s for the first retry, then 30 s, 1 min and so on up to 2 h. With
    /// ``order="queue"`` it is delivered again in place, before anything after it in its queue;
    /// later messages of the queue that are not settled are taken back, and delivered again after
    /// it; refusing one of these has no effect. After 16 retries, or ``retry_in_place`` attempts,
    /// it becomes a dead letter in ``%DLQ%<group>``. It becomes one at once if its properties leave
    /// no room for those of a retry: a record of a commit log holds 32,767 bytes of properties. In
    /// a partition log the topics are ``retry.<group>`` and ``dlq.<group>``.
    ///
    /// Parameters
    /// ----------
    /// message
    ///     A message that this consumer delivered.
    /// delay_level
    ///     RocketMQ's level of the delay, 1 to 18: 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min,
    ///     30 min, 1 h, 2 h. None: by the number of attempts. With ``order="queue"`` it has no
    ///     effect: the pauses grow from 1 s to 30 s, since nothing after the message is delivered
    ///     meanwhile.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError, OwnershipLostError
    ///     As `ack`.
    /// CorruptError
    ///     If the message was damaged on disk since it was delivered. It is not copied and stays
    ///     unsettled; its next delivery finds the damage and settles it.
    #[pyo3(signature = (message, delay_level=None))]
    fn nack(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::message)] message: &Bound<'_, Message>,
        delay_level: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let level = match delay_level {
            None => None,
            Some(given) => {
                let level = integer("delay_level", given)?.and_then(|it| u8::try_from(it).ok());
                let levels = self.store.core().options().delay_levels().all_ms().len();
                let rule = format!("be from 1 to {levels}, or None");
                Some(level.ok_or_else(|| must("delay_level", given, &rule))?)
            }
        };
        let delivery = delivery(message)?;
        Ok(self.ask(py, |core| core.nack(&delivery, level))??)
    }

    /// Make a message a dead letter: it goes to ``%DLQ%<group>`` and is not delivered again.
    ///
    /// In a partition log the topic is ``dlq.<group>``.
    ///
    /// Parameters
    /// ----------
    /// message
    ///     A message that this consumer delivered.
    /// reason
    ///     A text that the dead letter keeps in its property ``FOREBAY_REASON``: up to 1,000
    ///     characters, fewer if its other properties leave no room.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError, OwnershipLostError
    ///     As `ack`.
    /// CorruptError
    ///     As `nack`.
    #[pyo3(signature = (message, reason=None))]
    fn reject(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::message)] message: &Bound<'_, Message>,
        #[pyo3(from_py_with = named::reason)] reason: Option<&str>,
    ) -> PyResult<()> {
        let delivery = delivery(message)?;
        Ok(self.ask(py, |core| core.reject(&delivery, reason))??)
    }

    /// Keep a message for longer before it is delivered again.
    ///
    /// Parameters
    /// ----------
    /// message
    ///     A message that this consumer delivered.
    /// seconds
    ///     From now on; a number or a timedelta.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError, OwnershipLostError
    ///     As `ack`.
    fn extend(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::message)] message: &Bound<'_, Message>,
        seconds: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let longer = duration("seconds", seconds)?;
        let receipt = receipt(message)?;
        Ok(self.ask(py, |core| core.extend(receipt, longer))??)
    }

    /// Keep a message for longer, unless that has to wait for another thread or process.
    ///
    /// Return whether it is kept.
    #[pyo3(name = "_try_extend")]
    fn try_extend(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::message)] message: &Bound<'_, Message>,
        seconds: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let longer = duration("seconds", seconds)?;
        let receipt = receipt(message)?;
        Ok(self.call(py, |core| core.try_extend(receipt, longer))?)
    }
}
