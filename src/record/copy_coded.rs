//! Copies records from Kafka's form to RocketMQ's, and back.

use super::common::check::check_born;
use super::common::{Copied, Draft, Labels, PropertyKind, coded};
use super::kafka;
use super::rocketmq;
use super::row::Row;
use crate::error::{Error, Result};
use std::borrow::Cow;

/// Adds a copy, in RocketMQ's form, of a record in Kafka's form. A key or headers that are not
/// text, and a null value, become [`coded`] properties.
///
/// # Errors
///
/// As [`rocketmq::Batch::push`]. The batch is then unchanged.
pub fn to_rocketmq(batch: &mut rocketmq::Batch, of: &Row<'_>, to: &Copied<'_>) -> Result<()> {
    let mut labels = Labels::default();
    of.read_labels(&mut labels, true);
    let body = of.body();
    let body = body.map_err(|reason| Error::option("body", "compressed", reason))?;
    let key = labels.key();
    let key = key.as_deref();
    let plain = key.and_then(coded::plain_key);
    let mut made = coded::Coded::new(key.filter(|_| plain.is_none()), of.is_null());
    let mut properties: Vec<(&str, &str)> = Vec::with_capacity(labels.own.len());
    let kept = labels
        .own
        .iter()
        .filter(|(name, _)| !to.without.contains(&&**name));
    for (number, (name, value)) in kept.enumerate() {
        match coded::plain_header(name.as_bytes(), *value) {
            Some(plain) => properties.push(plain),
            None => made.add_header(number, name.as_bytes(), *value),
        }
    }
    let coded = made.properties.iter();
    properties.extend(coded.map(|(name, value)| (name.as_str(), value.as_str())));
    let all = of.keys();
    let first = plain.or((!made.key.is_empty()).then_some(made.key.as_str()));
    let further = all.iter().skip(usize::from(key.is_some()));
    let keys: Vec<&str> = first.into_iter().chain(further.map(|key| &**key)).collect();
    let system = of.properties(PropertyKind::System);
    let system = system
        .iter()
        .filter(|(name, _)| !to.without.contains(&name.as_str()));
    let system = system.map(|(name, value)| (name.as_str(), value.as_str()));
    let system: Vec<(&str, &str)> = system.chain(to.with.iter().copied()).collect();
    let tags: Option<Cow<'_, str>> = of.tags();
    let draft = Draft {
        body: &body,
        keys: &keys,
        tags: tags.as_deref(),
        properties: &properties,
        system_properties: &system,
        born_timestamp: Some(of.born_timestamp()),
        flag: of.flag(),
        reconsume_times: to.reconsume_times,
        ..Draft::default()
    };
    batch.push_any_len(to.topic, to.queue, &draft, to.clock_ms)
}

/// Adds a copy of a record in RocketMQ's form: [`coded`] properties become the key, the null value
/// and the headers that they stand for. Keeps the system properties for which Kafka's form has
/// headers.
///
/// # Errors
///
/// [`Error::TooLarge`] for a record that is longer than a batch; [`Error::InvalidOption`] for a
/// property with the name of one of Forebay's own headers, and for a born time outside the years 1
/// to 9999. The batch is then unchanged.
pub fn to_kafka(batch: &mut kafka::Batch, of: &Row<'_>, to: &Copied<'_>) -> Result<()> {
    // The difference of two such times fits the field of a batch that stores it.
    check_born(Some(of.born_timestamp()))?;
    let mut labels = Labels::default();
    of.read_labels(&mut labels, true);
    let body = of.body();
    let body = body.map_err(|reason| Error::option("body", "compressed", reason))?;
    let key = labels.key();
    let own = &mut labels.own;
    own.retain(|(name, _)| !to.without.contains(&&**name));
    let headers = coded::headers(own);
    let headers = headers
        .iter()
        .map(|(name, value)| (&**name, value.as_deref()));
    let headers: Vec<(&str, Option<&[u8]>)> = headers.collect();
    let all = of.keys();
    // `all` does not include an empty key.
    let first = usize::from(key.as_ref().is_some_and(|key| !key.is_empty()));
    let further: Vec<&str> = all.iter().skip(first).map(|key| &**key).collect();
    let system = of.properties(PropertyKind::System);
    let system = system
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let system = system.filter(|(name, _)| kafka::has_header_for(name));
    let system = system.filter(|(name, _)| !to.without.contains(name));
    let system: Vec<(&str, &str)> = system.chain(to.with.iter().copied()).collect();
    let tags: Option<Cow<'_, str>> = of.tags();
    let draft = Draft {
        body: &body,
        is_null: of.is_null(),
        keys: &further,
        key: key.as_deref(),
        tags: tags.as_deref(),
        headers: &headers,
        system_properties: &system,
        born_timestamp: Some(of.born_timestamp()),
        reconsume_times: to.reconsume_times,
        ..Draft::default()
    };
    batch.push_accepted(to.queue, &draft, to.clock_ms)
}
