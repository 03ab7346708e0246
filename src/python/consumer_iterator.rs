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

/// What an iterator has taken.
#[derive(Default)]
struct Ahead {
    messages: VecDeque<Delivery>,
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
}

#[pymethods]
impl ConsumerIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            if let Some(message) = self.ready(py)? {
                return Ok(Some(message));
            }
            let consumer = self.consumer.get();
            let got = consumer.take(py, consumer.prefetch, None)?;
            self.state.lock().messages.extend(got);
        }
    }

    /// Acknowledges the last message; returns the next one that was taken ahead.
    #[pyo3(name = "_ready")]
    fn ready(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let consumer = self.consumer.get();
        self.acknowledge(consumer, py)?;
        loop {
            let Some(delivery) = self.state.lock().messages.pop_front() else {
                return Ok(None);
            };
            // It may have waited here for so long that it was delivered again, or an earlier
            // message of an ordered queue may have been refused meanwhile.
            let receipt = &delivery.receipt;
            if consumer.core.renew(receipt).is_ok() {
                self.state.lock().last = Some(receipt.clone());
                return Ok(Some(delivery.into()));
            }
            consumer.core.give_back([receipt]);
        }
    }

    /// Take messages ahead, without waiting. If there are none, return what to wait for.
    #[pyo3(name = "_try_poll")]
    fn try_poll(&self, py: Python<'_>) -> PyResult<Option<Pause>> {
        let consumer = self.consumer.get();
        let polled = consumer.call(py, |core| core.try_poll(consumer.prefetch))?;
        let pause = polled.taken.is_empty().then(|| Pause::of(&polled));
        self.state.lock().messages.extend(polled.taken);
        Ok(pause)
    }
}

impl Drop for ConsumerIterator {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let unseen = state.messages.iter().map(|it| &it.receipt);
        self.consumer.get().core.give_back(unseen);
    }
}
