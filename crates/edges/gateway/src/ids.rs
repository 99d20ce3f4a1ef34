use crate::config::Entropy;

/// Longest request id of a client that is repeated to it.
const MAX_CLIENT_ID: usize = 128;

/// `prefix` and 128 random bits in hexadecimal. Ids are the server's own, so that two clients that
/// send the same request id stay apart.
pub(crate) fn fresh(prefix: &str, entropy: &Entropy) -> String {
    format!("{prefix}{:016x}{:016x}", entropy(), entropy())
}

/// A client's request id, when it is safe in headers and logs.
pub(crate) fn sane(id: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (!id.is_empty() && id.len() <= MAX_CLIENT_ID && id.bytes().all(is_plain)).then_some(id)
}

/// The seed of a prompt's choice `index`. Choice 0 has the request's own, so that it is the reply
/// that `n = 1` gives; the others are far apart (the finalizer of SplitMix64: Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
pub(crate) fn choice_seed(seed: u64, index: u32) -> u64 {
    if index == 0 {
        return seed;
    }
    let mut z = seed.wrapping_add(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A name for what decides a reply besides the request: FNV-1a over the parts. Not a secret and not
/// an identity, only something that changes when they do.
pub(crate) fn fingerprint(parts: &[&str]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("fp_{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids() {
        for (id, is_sane) in [("abc-1_2.3", true), ("", false), ("a b", false), ("a\n", false), ("é", false)]
        {
            assert_eq!(sane(id).is_some(), is_sane, "{id:?}");
        }
        assert!(sane(&"x".repeat(128)).is_some());
        assert!(sane(&"x".repeat(129)).is_none());
    }

    #[test]
    fn choices_have_their_own_seeds() {
        let seeds: std::collections::HashSet<u64> =
            [0, 1, u64::MAX].iter().flat_map(|&seed| (0..8).map(move |i| choice_seed(seed, i))).collect();
        assert_eq!(seeds.len(), 24);
        assert_eq!(choice_seed(42, 0), 42);
        assert_eq!(choice_seed(42, 1), choice_seed(42, 1));
    }
}
