//! The arguments of `Store.consumer`, and joining a group with them.

use super::consumer::Consumer;
use super::convert::{count, duration, items, tags, text, word};
use super::errors::must;
use super::handle::call_answering;
use super::start::start_of;
use super::store::Store;
use crate::{ConsumerOptions, Order};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Messages that an iterator takes at once.
const PREFETCH: usize = 64;

/// The arguments of `Store.consumer`.
pub(super) struct Wanted<'a, 'py> {
    pub(super) topics: &'a Bound<'py, PyAny>,
    pub(super) group: &'a str,
    pub(super) start: Option<&'a Bound<'py, PyAny>>,
    pub(super) order: &'a str,
    pub(super) tags: Option<&'a Bound<'py, PyAny>>,
    pub(super) ack: &'a str,
    pub(super) visibility_timeout: Option<&'a Bound<'py, PyAny>>,
    pub(super) max_unsettled: Option<&'a Bound<'py, PyAny>>,
    pub(super) retry_in_place: Option<&'a Bound<'py, PyAny>>,
    pub(super) prefetch: Option<&'a Bound<'py, PyAny>>,
    pub(super) session_timeout: Option<&'a Bound<'py, PyAny>>,
}

impl Wanted<'_, '_> {
    /// `now_ms` is the time of the store.
    fn options(&self, now_ms: i64) -> PyResult<ConsumerOptions> {
        let mut options = ConsumerOptions::default();
        if let Some(start) = self.start {
            options.start = start_of("start", start, now_ms)?;
        }
        options.order = match self.order {
            "none" => Order::None,
            "queue" => Order::Queue,
            other => {
                let rule = "be \"none\" or \"queue\"";
                return Err(must("order", format!("{other:?}"), rule));
            }
        };
        options.filter.tags = tags(self.tags)?;
        if let Some(timeout) = self.visibility_timeout {
            options.visibility_timeout = duration("visibility_timeout", timeout)?;
        }
        if let Some(timeout) = self.session_timeout {
            options.session_timeout = duration("session_timeout", timeout)?;
        }
        if let Some(max) = self.max_unsettled {
            options.max_unsettled = count("max_unsettled", max)? as u64;
        }
        if let Some(attempts) = self.retry_in_place {
            let attempts = count("retry_in_place", attempts)?;
            options.retry_in_place = u32::try_from(attempts).unwrap_or(u32::MAX);
        }
        Ok(options)
    }

    /// Joins the group.
    pub(super) fn join(&self, store: &Bound<'_, Store>) -> PyResult<Consumer> {
        let topics: Vec<String> = match self.topics.cast::<PyString>() {
            Ok(topic) => vec![word("topics", topic)?.to_owned()],
            Err(_) => {
                let items = items("topics", self.topics)?;
                let names = items.iter().map(|item| text("topics", item));
                names
                    .map(|name| name.map(str::to_owned))
                    .collect::<PyResult<_>>()?
            }
        };
        let acknowledges = match self.ack {
            "auto" => true,
            "manual" => false,
            other => {
                let rule = "be \"auto\" or \"manual\"";
                return Err(must("ack", format!("{other:?}"), rule));
            }
        };
        let prefetch = self
            .prefetch
            .map_or(Ok(PREFETCH), |it| count("prefetch", it))?;
        let options = self.options(store.get().core().now_ms())?;
        let group = self.group;
        let core = call_answering(store.py(), store.get().core(), |core| {
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            core.consumer(&topics, group, options)
        })?;
        let handle = Store::handle(store);
        Ok(Consumer::new(core, handle, acknowledges, prefetch))
    }
}
