//! Where the groups of consumers begin.

use super::convert::{duration, integer, limit_or};
use super::errors::must;
use super::mapping::mapping_items;
use crate::Start;
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// Where a group begins: a word, an aware `datetime`, a `timedelta` ago, or offsets by topic and
/// queue.
pub(super) fn start_of(name: &str, object: &Bound<'_, PyAny>, now_ms: i64) -> PyResult<Start> {
    if object.is_instance_of::<pyo3::types::PyDelta>() {
        let ago = duration(name, object)?.as_millis();
        let at = now_ms.saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX));
        return Ok(Start::Everywhere(crate::Bound::Time(at)));
    }
    let Some(items) = mapping_items(object)? else {
        let others = "an aware datetime, a timedelta or {(topic, queue): offset}";
        return limit_or(name, object, others).map(Start::Everywhere);
    };
    let mut offsets: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    for item in items {
        let (key, offset) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let wrong = || must(name, object, "map (topic, queue) to an offset, 0 or more");
        let (topic, queue) = key.extract::<(String, u32)>().map_err(|_| wrong())?;
        let offset = integer(name, &offset)?.and_then(|it| u64::try_from(it).ok());
        let of_topic = offsets.entry(topic).or_default();
        of_topic.insert(queue, offset.ok_or_else(wrong)?);
    }
    let bounds = offsets.into_iter();
    let bounds = bounds.map(|(topic, offsets)| (topic, crate::Bound::Offsets(offsets)));
    Ok(Start::ByTopic(bounds.collect()))
}
