//! The hash by which Kafka's producers choose a partition for a key.

const SEED: u32 = 0x9747_B28C;
const M: u32 = 0x5BD1_E995;

/// The partition of a key among `partitions`, as a producer with Kafka's default partitioner
/// chooses it.
pub fn partition_of_key(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7FFF_FFFF) % partitions.max(1)
}

/// MurmurHash2, as Kafka computes it.
fn murmur2(key: &[u8]) -> u32 {
    let mut hash = SEED ^ crate::num::short(key.len());
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let word = word
            .first_chunk()
            .map_or(0, |word| u32::from_le_bytes(*word));
        let word = word.wrapping_mul(M);
        let word = (word ^ (word >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ word;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let bytes = rest.iter().rev();
        hash ^= bytes.fold(0, |word, byte| (word << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod test {
    use super::*;

    /// The values of the tests of Kafka's clients.
    #[test]
    fn keys_have_the_hashes_of_kafkas_clients() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }

    /// The partitions that Kafka's `BuiltInPartitioner` gives among 1, 3, 7 and 1,000. The first
    /// three hashes are negative.
    #[test]
    fn keys_have_the_partitions_of_kafkas_producers() {
        let keys: [(&[u8], [u32; 4]); 7] = [
            (b"21", [0, 0, 3, 340]),
            (b"foobar", [0, 0, 0, 166]),
            (b"a-little-bit-long-string", [0, 2, 1, 112]),
            (b"", [0, 0, 2, 681]),
            (b"abc", [0, 0, 4, 107]),
            (b"k1", [0, 2, 0, 97]),
            (b"\xFF\x00", [0, 1, 5, 367]),
        ];
        for (key, places) in keys {
            let found = [1, 3, 7, 1000].map(|partitions| partition_of_key(key, partitions));
            assert_eq!(found, places, "{key:?}");
        }
    }
}
