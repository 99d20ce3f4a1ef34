//! Logits to token: pure functions of (logits, parameters, token index).
//!
//! The random number of a token depends on (seed, index) alone (contract 1): nothing is shared
//! with neighbours or advanced by them, and a reply resumed elsewhere draws what it would have drawn.

mod random;

use motet_types::{Logprobs, SamplingParams, TokenId};

pub use random::uniform;

/// The logit of a token that must not be drawn: finite, since infinities mean a broken model.
pub const FORBIDDEN: f32 = f32::MIN;

/// Logarithm of the least weight, relative to the likeliest token's, that counts: e⁻⁸⁰ ≈ 2⁻¹¹⁵.
const LEAST: f32 = -80.0;

/// NaN or infinity among the logits: this sequence can't go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the logits hold a value that is not finite")]
pub struct NonFinite;

/// Draws token `index` of a reply from one row of logits.
///
/// Order of the transforms: temperature, top-k, top-p, min-p. Equal logits rank by token id.
/// `logits` of [`FORBIDDEN`] are never drawn while another one is left.
pub fn sample(logits: &[f32], params: &SamplingParams, index: u32) -> Result<TokenId, NonFinite> {
    let (best, max) = argmax(logits)?;
    if params.temperature <= 0.0 || params.top_k == 1 {
        return Ok(best);
    }
    let weight = |logit: f32| {
        let x = (logit - max) / params.temperature;
        // What no draw could tell from nothing is nothing, so that a forbidden token stays forbidden.
        let weight = motet_math::exp(x);
        if x < LEAST { 0.0 } else { weight }
    };
    let random = uniform(params.seed, index);
    if params.top_k == 0 && params.top_p >= 1.0 && params.min_p <= 0.0 {
        let weights: Vec<f32> = logits.iter().map(|&logit| weight(logit)).collect();
        return Ok(pick(weights.iter().enumerate().map(|(id, &w)| (id as TokenId, w)), random));
    }
    let kept = truncate(logits, params, weight);
    Ok(pick(kept.iter().copied(), random))
}

/// Natural logarithms of the model's own distribution: the chosen token's and the `top` likeliest.
pub fn logprobs(logits: &[f32], chosen: TokenId, top: usize) -> Result<Logprobs, NonFinite> {
    let (_, max) = argmax(logits)?;
    let total: f64 = logits.iter().map(|&logit| f64::from(motet_math::exp(logit - max))).sum();
    let log_total = libm::log(total);
    let log_probability = |logit: f32| (f64::from(logit - max) - log_total) as f32;
    let ranked =
        likeliest(logits.iter().copied().enumerate().map(|(id, l)| (id as TokenId, l)).collect(), top);
    Ok(Logprobs {
        chosen: logits.get(chosen as usize).map_or(f32::MIN, |&logit| log_probability(logit)),
        top: ranked.into_iter().map(|(id, logit)| (id, log_probability(logit))).collect(),
    })
}

fn argmax(logits: &[f32]) -> Result<(TokenId, f32), NonFinite> {
    let mut best = (0, f32::NEG_INFINITY);
    let mut is_finite = !logits.is_empty();
    for (id, &logit) in logits.iter().enumerate() {
        is_finite &= logit.is_finite();
        if logit > best.1 {
            best = (id as TokenId, logit);
        }
    }
    if is_finite { Ok(best) } else { Err(NonFinite) }
}

/// The candidates that survive top-k, top-p and min-p, likeliest first, with their weights.
fn truncate(logits: &[f32], params: &SamplingParams, weight: impl Fn(f32) -> f32) -> Vec<(TokenId, f32)> {
    let mut candidates: Vec<(TokenId, f32)> =
        logits.iter().enumerate().map(|(id, &logit)| (id as TokenId, weight(logit))).collect();
    if params.top_k > 0 && (params.top_k as usize) < candidates.len() {
        candidates = likeliest(candidates, params.top_k as usize);
    }
    if params.top_p < 1.0 {
        candidates = nucleus(candidates, f64::from(params.top_p));
    }
    // The likeliest token's weight is e⁰ = 1, so a share of it is the weight itself.
    candidates.retain(|(_, weight)| *weight >= params.min_p);
    candidates
}

/// The `count` highest, highest first; equal values rank by id.
fn likeliest(mut candidates: Vec<(TokenId, f32)>, count: usize) -> Vec<(TokenId, f32)> {
    let order = |a: &(TokenId, f32), b: &(TokenId, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count == 0 {
        return Vec::new();
    }
    if count < candidates.len() {
        candidates.select_nth_unstable_by(count - 1, order);
        candidates.truncate(count);
    }
    candidates.sort_unstable_by(order);
    candidates
}

/// The smallest set of likeliest candidates that holds `share` of the total weight; at least one.
///
/// Candidates so light that all of them together are less than the rest of the weight are never in it, so
/// only the others are sorted: a few tokens of a vocabulary of many thousands.
fn nucleus(mut candidates: Vec<(TokenId, f32)>, share: f64) -> Vec<(TokenId, f32)> {
    let total: f64 = candidates.iter().map(|(_, weight)| f64::from(*weight)).sum();
    // Half of what would do, so that rounding can't matter.
    let least = 0.5 * (1.0 - share) * total / candidates.len() as f64;
    candidates.retain(|(_, weight)| f64::from(*weight) >= least);
    let count = candidates.len();
    let mut ranked = likeliest(candidates, count);
    let mut sum = 0.0;
    let reached = ranked.iter().position(|(_, weight)| {
        sum += f64::from(*weight);
        sum >= share * total
    });
    ranked.truncate(reached.map_or(count, |last| last + 1));
    ranked
}

/// The candidate whose share of the total weight holds `random`, in the candidates' order.
fn pick(candidates: impl Iterator<Item = (TokenId, f32)> + Clone, random: f64) -> TokenId {
    let total: f64 = candidates.clone().map(|(_, weight)| f64::from(weight)).sum();
    let target = random * total;
    let (mut sum, mut last) = (0.0, 0);
    for (id, weight) in candidates {
        sum += f64::from(weight);
        if weight > 0.0 {
            last = id;
        }
        if sum > target {
            return id;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOGITS: [f32; 5] = [1.0, 3.0, 2.0, 3.0, -1.0];

    fn params(temperature: f32) -> SamplingParams {
        SamplingParams { temperature, seed: 42, ..SamplingParams::GREEDY }
    }

    fn drawn(params: SamplingParams) -> Vec<TokenId> {
        let mut seen: Vec<_> = (0..500).map(|i| sample(&LOGITS, &params, i).unwrap()).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        assert_eq!(sample(&LOGITS, &SamplingParams::GREEDY, 0), Ok(1));
    }

    #[test]
    fn truncation_keeps_what_it_names() {
        assert_eq!(drawn(params(1.0)), [0, 1, 2, 3, 4]);
        assert_eq!(drawn(SamplingParams { top_k: 2, ..params(1.0) }), [1, 3]);
        assert_eq!(drawn(SamplingParams { top_k: 3, ..params(1.0) }), [1, 2, 3]);
        assert_eq!(drawn(SamplingParams { top_k: 99, ..params(1.0) }), [0, 1, 2, 3, 4]);
        // Shares at temperature 1: 0.399, 0.399, 0.147, 0.054, 0.007.
        assert_eq!(drawn(SamplingParams { top_p: 0.3, ..params(1.0) }), [1]);
        assert_eq!(drawn(SamplingParams { top_p: 0.5, ..params(1.0) }), [1, 3]);
        assert_eq!(drawn(SamplingParams { top_p: 0.9, ..params(1.0) }), [1, 2, 3]);
        assert_eq!(drawn(SamplingParams { min_p: 0.2, ..params(1.0) }), [1, 2, 3]);
        assert_eq!(drawn(SamplingParams { min_p: 1.0, ..params(1.0) }), [1, 3]);
    }

    #[test]
    fn shares_are_those_of_the_softmax() {
        let count = (0..20_000).filter(|i| sample(&LOGITS, &params(1.0), *i) == Ok(2)).count();
        assert!((count as f64 / 20_000.0 - 0.1447).abs() < 0.01, "{count}");
    }

    #[test]
    fn a_forbidden_token_is_not_drawn() {
        let logits = [FORBIDDEN, 1.0, FORBIDDEN];
        for params in
            [params(1.0), params(2.0), SamplingParams { top_p: 0.9, ..params(1.0) }, SamplingParams::GREEDY]
        {
            assert!((0..2000).all(|i| sample(&logits, &params, i) == Ok(1)));
        }
        assert_eq!(pick([(0, 0.0), (1, 1.0), (2, 0.0)].into_iter(), 1e-17), 1);
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(sample(&[0.0, bad], &params(1.0), 0), Err(NonFinite));
            assert_eq!(logprobs(&[0.0, bad], 0, 1).map(|_| ()), Err(NonFinite));
        }
        assert_eq!(sample(&[], &params(1.0), 0), Err(NonFinite));
    }

    #[test]
    fn logprobs_are_of_the_raw_distribution() {
        let logprobs = logprobs(&LOGITS, 4, 2).unwrap();
        let total: f64 = LOGITS.iter().map(|l| f64::from(*l).exp()).sum();
        let expected = |id: usize| f64::from(LOGITS[id]) - total.ln();
        assert!((f64::from(logprobs.chosen) - expected(4)).abs() < 1e-5);
        assert_eq!(logprobs.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 3]);
        assert!((f64::from(logprobs.top[0].1) - expected(1)).abs() < 1e-5);
    }

    proptest! {
        /// Sorting what can matter equals sorting everything.
        #[test]
        fn nucleus_equals_a_full_sort(logits in proptest::collection::vec(-4f32..4.0, 1..700), share in 0.01f64..0.99) {
            let candidates: Vec<_> = logits.iter().enumerate().map(|(i, l)| (i as TokenId, motet_math::exp(*l))).collect();
            let all = likeliest(candidates.clone(), candidates.len());
            let total: f64 = candidates.iter().map(|c| f64::from(c.1)).sum();
            let mut sum = 0.0;
            let count = all.iter().take_while(|c| { let more = sum < share * total; sum += f64::from(c.1); more }).count();
            prop_assert_eq!(nucleus(candidates, share), all[..count.max(1)].to_vec());
        }

        #[test]
        fn a_drawn_token_exists(logits in proptest::collection::vec(-80f32..80.0, 1..50), seed: u64, index: u32, t in 0.01f32..2.0) {
            let token = sample(&logits, &SamplingParams { seed, ..params(t) }, index).unwrap();
            prop_assert!((token as usize) < logits.len());
        }
    }
}
