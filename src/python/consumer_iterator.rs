//! Iterating over a consumer in Python.

use super::consumer::Consumer;
use super::message::Message;
use super::pause::Pause;
use super::waiting::Wait;
use crate::{Delivery, Error, Mutex, Receipt};
use pyo3::prelude::*;
use std::collections::VecDeque;

#[pymethods]
impl Consumer {
    fn __iter__(slf: Bound<'_, Self>) -> ConsumerIterator {
        ConsumerIterator {
            consumer: slf.unbind(),
            state: Mutex::default(),
        }
    }
}

/// The messages of a consumer, one by one; made by iterating over a `Consumer`.
///
/// With ``ack="auto"`` taking the next message acknowledges all that the same iterator has handed
/// out before. So each thread or task should iterate by itself. If several share an iterator, each
/// message goes to one of them, in no defined order, and whoever takes a message acknowledges also
/// those that the others still handle.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct ConsumerIterator {
    consumer: Py<Consumer>,
    state: Mutex<Ahead>,
}

/// The messages that an iterator has taken.
#[derive(Default)]
struct Ahead {
    messages: VecDeque<Delivery>,
    /// One that could be handed out when it was put here.
    next: Option<Delivery>,
    /// Those that were handed out and are to be acknowledged: more than one if several threads
    /// take messages.
    handed_out: VecDeque<Receipt>,
}

impl Ahead {
    /// The next message, and whether it could be handed out when it was put here.
    fn pop(&mut self) -> Option<(Delivery, bool)> {
        match self.next.take() {
            Some(next) => Some((next, true)),
            None => Some((self.messages.pop_front()?, false)),
        }
    }

    /// Keeps a message that may be handed out. Another thread may have put one here meanwhile.
    fn put(&mut self, next: Delivery) {
        if let Some(other) = self.next.replace(next) {
            self.messages.push_front(other);
        }
    }

    fn is_empty(&self) -> bool {
        self.next.is_none() && self.messages.is_empty()
    }
}

impl ConsumerIterator {
    /// Acknowledges the messages that were handed out, unless somebody has settled them.
    fn acknowledge(&self, consumer: &Consumer, py: Python<'_>) -> PyResult<()> {
        while let Some(last) = self.pop_handed_out() {
            let settled = consumer.ask(py, |core| core.ack([&last]));
            self.acknowledged(last, settled)?;
        }
        Ok(())
    }

    /// As [`ConsumerIterator::acknowledge`]. Returns false if it would have to wait for another
    /// thread or process.
    fn try_acknowledge(&self, consumer: &Consumer, py: Python<'_>) -> PyResult<bool> {
        while let Some(last) = self.pop_handed_out() {
            let (left, settled) = consumer.call(py, |core| Ok(core.try_ack([&last])))?;
            if !left.is_empty() {
                self.state.lock().handed_out.push_front(last);
                return Ok(false);
            }
            self.acknowledged(last, Ok(settled))?;
        }
        Ok(true)
    }

    /// In a loop, the lock must not be held during its body.
    fn pop_handed_out(&self) -> Option<Receipt> {
        self.state.lock().handed_out.pop_front()
    }

    /// The result of an acknowledgement. After an error other than that of a lost message, the
    /// next call acknowledges it again.
    fn acknowledged(&self, last: Receipt, settled: PyResult<crate::Result<()>>) -> PyResult<()> {
        match settled {
            Ok(Ok(()) | Err(Error::AlreadySettled { .. })) => Ok(()),
            Ok(Err(lost @ Error::OwnershipLost { .. })) => Err(lost.into()),
            failed => {
                self.state.lock().handed_out.push_front(last);
                Ok(failed??)
            }
        }
    }

    /// The next message that was taken ahead and may be handed out.
    fn advance(&self, consumer: &Consumer, py: Python<'_>) -> Option<Delivery> {
        let core = &*consumer.core;
        loop {
            let (delivery, _) = self.state.lock().pop()?;
            let receipt = &delivery.receipt;
            // It may have waited here for so long that it was delivered again, or an earlier
            // message of an ordered queue may have been refused meanwhile.
            let renewed = match core.try_renew(receipt) {
                Ok(false) => py.detach(|| core.renew(receipt)),
                renewed => renewed.map(drop),
            };
            if renewed.is_ok() {
                return Some(delivery);
            }
            py.detach(|| core.give_back([receipt]));
        }
    }

    /// As [`ConsumerIterator::advance`]; none if it would have to wait for another thread or
    /// process, or if the next message cannot be handed out.
    fn try_advance(&self, consumer: &Consumer) -> Option<Delivery> {
        let (delivery, is_checked) = self.state.lock().pop()?;
        match consumer.core.try_renew(&delivery.receipt) {
            Ok(true) => Some(delivery),
            // Otherwise a lock that is always busy would keep it from being handed out.
            Ok(false) if is_checked => Some(delivery),
            _ => {
                self.state.lock().messages.push_front(delivery);
                None
            }
        }
    }

    /// Keeps messages that were taken. Another thread may wait for them.
    fn keep(&self, core: &crate::Consumer, taken: Vec<Delivery>) {
        let has_some = !taken.is_empty();
        self.state.lock().messages.extend(taken);
        if has_some {
            core.wake();
        }
    }

    fn has_some(&self) -> bool {
        !self.state.lock().is_empty()
    }

    /// Waits for messages, or until another thread has taken some. Answers signals.
    fn await_messages(&self, consumer: &Consumer, py: Python<'_>) -> PyResult<()> {
        let mut wait = Wait::new(None);
        while !self.has_some() {
            let slice = wait.slice();
            let taken = consumer.ask(py, |core| {
                let taken = core.poll_until(consumer.prefetch, slice, &|| self.has_some())?;
                self.keep(core, taken);
                Ok(())
            });
            taken??;
            if !self.has_some() {
                wait.pause(py)?;
            }
        }
        Ok(())
    }

    fn hand_out(&self, consumer: &Consumer, delivery: Delivery) -> Message {
        if consumer.acknowledges {
            let receipt = delivery.receipt.clone();
            self.state.lock().handed_out.push_back(receipt);
        }
        delivery.into()
    }
}

#[pymethods]
impl ConsumerIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            let consumer = self.consumer.get();
            self.acknowledge(consumer, py)?;
            if let Some(delivery) = self.advance(consumer, py) {
                return Ok(Some(self.hand_out(consumer, delivery)));
            }
            self.await_messages(consumer, py)?;
        }
    }

    /// Acknowledge what was handed out and return the next message that was taken ahead.
    ///
    /// Returns None if this has to wait for another thread or process.
    #[pyo3(name = "_ready")]
    fn ready(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let consumer = self.consumer.get();
        if !self.try_acknowledge(consumer, py)? {
            return Ok(None);
        }
        let next = self.try_advance(consumer);
        Ok(next.map(|delivery| self.hand_out(consumer, delivery)))
    }

    /// Acknowledge what was handed out, and take messages ahead without waiting for any.
    ///
    /// If there are none, return what to wait for.
    #[pyo3(name = "_try_poll")]
    fn try_poll(&self, py: Python<'_>) -> PyResult<Option<Pause>> {
        let consumer = self.consumer.get();
        self.acknowledge(consumer, py)?;
        if let Some(next) = self.advance(consumer, py) {
            self.state.lock().put(next);
            return Ok(None);
        }
        let polled = consumer.call(py, |core| {
            let mut polled = core.try_poll(consumer.prefetch)?;
            self.keep(core, std::mem::take(&mut polled.taken));
            Ok(polled)
        })?;
        // What another thread takes from here on is one of the changes that end the pause.
        Ok((!self.has_some()).then(|| Pause::of(&polled)))
    }
}

impl Drop for ConsumerIterator {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let unseen = state.next.iter().chain(&state.messages);
        let unseen: Vec<&Receipt> = unseen.map(|it| &it.receipt).collect();
        let core = &*self.consumer.get().core;
        // It does not wait for other threads, but may load pages from the disk.
        let give_back = || core.give_back(unseen.iter().copied());
        // While the interpreter exits, no thread waits for it.
        if Python::try_attach(|py| py.detach(give_back)).is_none() {
            give_back();
        }
    }
}
