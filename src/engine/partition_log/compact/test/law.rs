//! The law of compaction, under random histories.

use super::*;

/// What a history does next.
#[derive(Clone, Debug)]
enum Act {
    /// A batch: keys, `None` for no key, and whether it has a value; codec; producer.
    Send(Vec<(Option<u8>, bool)>, u16, Option<i64>),
    /// Ends the transaction of a producer.
    End(i64, TransactionMarker),
    /// Begins another segment.
    Roll,
}

fn act() -> impl Strategy<Value = Act> {
    let row = (
        proptest::option::weighted(0.9, 0_u8..12),
        proptest::bool::weighted(0.8),
    );
    let rows = proptest::collection::vec(row, 1..6);
    let producer = proptest::option::weighted(0.4, 0_i64..3);
    let marker = prop_oneof![
        Just(TransactionMarker::Abort),
        Just(TransactionMarker::Commit)
    ];
    prop_oneof![
        6 => (rows, 0_u16..5, producer).prop_map(|(rows, codec, of)| Act::Send(rows, codec, of)),
        2 => (0_i64..3, marker).prop_map(|(producer, marker)| Act::End(producer, marker)),
        2 => Just(Act::Roll),
    ]
}

/// A history as batches, and the offsets that were aborted. All transactions have ended.
fn tell(acts: &[Act]) -> (Vec<Vec<Made>>, BTreeSet<u64>) {
    let mut segments = vec![Vec::new()];
    let mut next = 0;
    let mut open: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    let mut aborted = BTreeSet::new();
    let ends = (0..3).map(|producer| Act::End(producer, TransactionMarker::Commit));
    let ends = ends.chain([Act::Roll, Act::Send(vec![(Some(0), true)], 0, None)]);
    for act in acts.iter().cloned().chain(ends) {
        let mut made = Made {
            base: next,
            ..Made::default()
        };
        match act {
            Act::Send(rows, codec, producer) => {
                let row = |(offset, (key, has_value)): (u64, &(Option<u8>, bool))| {
                    let value = has_value.then(|| format!("value {offset}").into_bytes());
                    (key.map(|key| vec![key]), value)
                };
                made.rows = (next..).zip(&rows).map(row).collect();
                made.codec = codec;
                made.producer = producer;
                if let Some(producer) = producer {
                    made.is_transactional = true;
                    let offsets = open.entry(producer).or_default();
                    offsets.extend(made.base..made.end());
                }
            }
            Act::End(producer, marker) => {
                let Some(offsets) = open.remove(&producer) else {
                    continue;
                };
                if marker == TransactionMarker::Abort {
                    aborted.extend(offsets);
                }
                made.producer = Some(producer);
                made.marker = Some(marker);
            }
            Act::Roll => {
                if segments.last().is_some_and(|last| !last.is_empty()) {
                    segments.push(Vec::new());
                }
                continue;
            }
        }
        next = made.end();
        segments.last_mut().unwrap().push(made);
    }
    (segments, aborted)
}

/// What must be left of a history below `bound`: the latest committed record of each key.
fn survivors(rows: &[Row], aborted: &BTreeSet<u64>, bound: u64) -> Vec<Row> {
    let below = |row: &&Row| row.offset < bound && !aborted.contains(&row.offset);
    let keyed = rows.iter().filter(below).filter(|row| row.key.is_some());
    let mut latest: HashMap<_, &Row> = HashMap::new();
    for row in keyed {
        latest.insert(row.key.clone(), row);
    }
    let mut left: Vec<Row> = latest.into_values().cloned().collect();
    left.sort();
    left
}

proptest! {
    #![proptest_config(crate::seeds::proptest_cases(24))]

    /// For every key the latest record survives, offsets and times are kept, nothing after the
    /// bound is touched, and tombstones go with the first pass after their horizon.
    #[test]
    fn the_latest_record_of_each_key_survives(
        acts in proptest::collection::vec(act(), 1..60),
        memory in prop_oneof![Just(24_u64 * 4), Just(24 * 8), Just(1 << 20)],
    ) {
        let (segments, aborted) = tell(&acts);
        let compaction = Compaction {
            log_cleaner_dedupe_buffer_size: Some(memory),
            ..Compaction::default()
        };
        let mut log = Log::new(&segments, &compaction);
        let before: Vec<Row> = segments.iter().flatten().flat_map(Made::rows).collect();
        let bound = log.complete().end;
        let end = log.ends.next_offset(false);
        let after_bound = before.iter().filter(|row| row.offset >= bound);
        let after_bound: Vec<Row> = after_bound.cloned().collect();

        log.compact(0).unwrap();
        let mut expected = survivors(&before, &aborted, bound);
        expected.extend(after_bound.clone());
        let (rows, headers) = log.read();
        prop_assert_eq!(&rows, &expected);
        prop_assert_eq!(headers.last().unwrap().last_offset() + 1, end);
        if bound > 0 {
            let last = headers.iter().rfind(|header| header.first_offset() < bound).unwrap();
            prop_assert_eq!(last.last_offset() + 1, bound, "the end of the pass is lost");
        }
        let files = log.folder.path().read_dir().unwrap().count();
        prop_assert_eq!(files, log.bases().len() * 3 - 2, "files of the replacement are left");

        // Before the horizon nothing changes.
        log.now_ms += DAY_MS - 1;
        log.compact(bound).unwrap();
        prop_assert_eq!(&log.read().0, &expected);
        // After it tombstones go, unless a new value followed.
        log.now_ms += 2;
        log.compact(bound).unwrap();
        let (rows, _) = log.read();
        let is_left = |row: &Row| row.value.is_some() || row.offset >= bound;
        expected.retain(is_left);
        prop_assert_eq!(rows, expected);
    }

    /// It does not matter in how many rounds a history is compacted.
    #[test]
    fn a_second_history_is_compacted_like_one(
        acts in proptest::collection::vec(act(), 1..40),
        more in proptest::collection::vec(act(), 1..40),
    ) {
        let both: Vec<Act> = acts.iter().chain(&more).cloned().collect();
        let (segments, aborted) = tell(&both);
        let log = Log::new(&segments, &Compaction::default());
        let before: Vec<Row> = segments.iter().flatten().flat_map(Made::rows).collect();
        let complete = log.complete();
        let bound = complete.end;
        // A first round ends at some segment before the bound.
        let half = complete.segments.get(complete.segments.len() / 2);
        if let Some(half) = half.filter(|half| half.base > 0) {
            let mut first = complete.clone();
            first.cut(half.base);
            let is_open = |row: &Row| row.offset < half.base;
            if before.iter().any(is_open) {
                let mut pass = Pass {
                    disk: &RealDisk,
                    rules: &log.rules,
                    compact: &log.compact,
                    ends: &log.ends,
                    complete: &first,
                    ahead: &complete,
                    keyless: Keyless::Drop,
                    now_ms: log.now_ms,
                    pace: &mut |_| Ok(()),
                    is_swapping: false,
                };
                let (end, _) = pass.run(0).unwrap();
                prop_assert_eq!(end, half.base);
                log.compact(end).unwrap();
                let mut expected = survivors(&before, &aborted, bound);
                let after = before.iter().filter(|row| row.offset >= bound);
                expected.extend(after.cloned());
                prop_assert_eq!(log.read().0, expected);
            }
        }
    }
}
