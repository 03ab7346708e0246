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
    /// One that may be handed out.
    next: Option<Delivery>,
    last: Option<Receipt>,
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
    fn advance(&self, consumer: &Consumer) -> Option<Delivery> {
        if let Some(next) = self.state.lock().next.take() {
            return Some(next);
        }
        loop {
            let delivery = self.state.lock().messages.pop_front()?;
            // It may have waited here for so long that it was delivered again, or an earlier
            // message of an ordered queue may have been refused meanwhile.
            if consumer.core.renew(&delivery.receipt).is_ok() {
                return Some(delivery);
            }
            consumer.core.give_back([&delivery.receipt]);
        }
    }

    /// As [`ConsumerIterator::advance`]; none if it would have to wait for another thread or
    /// process, or if the next message cannot be handed out.
    fn try_advance(&self, consumer: &Consumer) -> Option<Delivery> {
        let delivery = {
            let mut state = self.state.lock();
            if let Some(next) = state.next.take() {
                return Some(next);
            }
            state.messages.pop_front()?
        };
        if matches!(consumer.core.try_renew(&delivery.receipt), Ok(true)) {
            return Some(delivery);
        }
        self.state.lock().messages.push_front(delivery);
        None
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
            if let Some(delivery) = self.advance(consumer) {
                return Ok(Some(self.hand_out(delivery)));
            }
            let got = consumer.take(py, consumer.prefetch, None)?;
            self.state.lock().messages.extend(got);
        }
    }

    /// Acknowledge the last message and return the next one that was taken ahead.
    ///
    /// Returns None if this has to wait for another thread or process.
    #[pyo3(name = "_ready")]
    fn ready(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let consumer = self.consumer.get();
        if !self.try_acknowledge(consumer, py)? {
            return Ok(None);
        }
        let next = self.try_advance(consumer);
        Ok(next.map(|delivery| self.hand_out(delivery)))
    }

    /// Acknowledge the last message, and take messages ahead without waiting for any.
    ///
    /// If there are none, return what to wait for.
    #[pyo3(name = "_try_poll")]
    fn try_poll(&self, py: Python<'_>) -> PyResult<Option<Pause>> {
        let consumer = self.consumer.get();
        self.acknowledge(consumer, py)?;
        if let Some(next) = self.advance(consumer) {
            self.state.lock().next = Some(next);
            return Ok(None);
        }
        let polled = consumer.call(py, |core| core.try_poll(consumer.prefetch))?;
        let pause = polled.taken.is_empty().then(|| Pause::of(&polled));
        self.state.lock().messages.extend(polled.taken);
        Ok(pause)
    }
}

impl Drop for ConsumerIterator {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let unseen = state.next.iter().chain(&state.messages);
        let unseen = unseen.map(|it| &it.receipt);
        self.consumer.get().core.give_back(unseen);
    }
}
