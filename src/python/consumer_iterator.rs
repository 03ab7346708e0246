//! Iterating over a consumer in Python.

use super::consumer::Consumer;
use super::message::Message;
use super::pause::Pause;
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
    last: Option<Receipt>,
    /// The error of a poll. A task that was cancelled during the poll has not seen it.
    failed: Option<PyErr>,
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
}

impl ConsumerIterator {
    /// Acknowledges the message that was handed out last, unless somebody has settled it.
    fn acknowledge(&self, consumer: &Consumer, py: Python<'_>) -> PyResult<()> {
        let last = self.state.lock().last.take();
        let Some(last) = last.filter(|_| consumer.acknowledges) else {
            return Ok(());
        };
        match consumer.ask(py, |core| core.ack([&last]))? {
            Err(Error::AlreadySettled { .. }) => Ok(()),
            settled => Ok(settled?),
        }
    }

    /// As [`ConsumerIterator::acknowledge`]. Returns false, and changes nothing, if it would have
    /// to wait for another thread or process.
    fn try_acknowledge(&self, consumer: &Consumer, py: Python<'_>) -> PyResult<bool> {
        let last = self.state.lock().last.take();
        let Some(last) = last.filter(|_| consumer.acknowledges) else {
            return Ok(true);
        };
        let (left, settled) = consumer.call(py, |core| Ok(core.try_ack([&last])))?;
        if !left.is_empty() {
            self.state.lock().last = Some(last);
            return Ok(false);
        }
        match settled {
            Err(Error::AlreadySettled { .. }) => Ok(true),
            settled => Ok(settled.map(|()| true)?),
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

    /// Acknowledges the last message, and takes messages ahead.
    fn take_ahead(&self, consumer: &Consumer, py: Python<'_>) -> PyResult<Option<Pause>> {
        self.acknowledge(consumer, py)?;
        if let Some(next) = self.advance(consumer, py) {
            self.state.lock().put(next);
            return Ok(None);
        }
        let polled = consumer.call(py, |core| core.try_poll(consumer.prefetch))?;
        let pause = polled.taken.is_empty().then(|| Pause::of(&polled));
        self.state.lock().messages.extend(polled.taken);
        Ok(pause)
    }

    fn hand_out(&self, delivery: Delivery) -> Message {
        self.state.lock().last = Some(delivery.receipt.clone());
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
                return Ok(Some(self.hand_out(delivery)));
            }
            let got = consumer.take(py, consumer.prefetch, None)?;
            self.state.lock().messages.extend(got);
        }
    }

    /// Acknowledge the last message and return the next one that was taken ahead.
    ///
    /// Returns None if this has to wait for another thread or process. Raises the error of the last
    /// `_try_poll`.
    #[pyo3(name = "_ready")]
    fn ready(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let failed = self.state.lock().failed.take();
        if let Some(error) = failed {
            return Err(error);
        }
        let consumer = self.consumer.get();
        if !self.try_acknowledge(consumer, py)? {
            return Ok(None);
        }
        let next = self.try_advance(consumer);
        Ok(next.map(|delivery| self.hand_out(delivery)))
    }

    /// Acknowledge the last message, and take messages ahead without waiting for any.
    ///
    /// If there are none, return what to wait for. `_ready` raises the error, if there was one.
    #[pyo3(name = "_try_poll")]
    fn try_poll(&self, py: Python<'_>) -> Option<Pause> {
        let taken = self.take_ahead(self.consumer.get(), py);
        taken.unwrap_or_else(|error| {
            self.state.lock().failed = Some(error);
            None
        })
    }
}

impl Drop for ConsumerIterator {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let unseen = state.next.iter().chain(&state.messages);
        let unseen: Vec<&Receipt> = unseen.map(|it| &it.receipt).collect();
        let core = &*self.consumer.get().core;
        let give_back = || core.give_back(unseen.iter().copied());
        // While the interpreter exits, no thread waits for it.
        if Python::try_attach(|py| py.detach(give_back)).is_none() {
            give_back();
        }
    }
}
