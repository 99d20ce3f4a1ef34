//! Comparison with logits, continuations and perplexity computed by transformers.
//!
//! Tolerances are those of the reference folder's README.

use std::path::PathBuf;

use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision};
use serde_json::Value;

/// A model and what is known of it.
pub(crate) struct Reference {
    /// Its folder in the reference data.
    pub(crate) folder: &'static str,
    /// Its file, when it is there.
    pub(crate) file: fn() -> Option<PathBuf>,
    pub(crate) exact: Tolerance,
    pub(crate) fast: Tolerance,
    /// Tokens of the perplexity's text that are looked at: a token's logits take memory.
    pub(crate) perplexity_tokens: usize,
}

pub(crate) struct Tolerance {
    /// Mean over all positions.
    pub(crate) mean: f64,
    /// Mean over the 20 tokens of one position.
    pub(crate) per_position: f64,
    /// Any token.
    pub(crate) max: f64,
    /// Where the two likeliest tokens are further apart than this, the likeliest must be the same.
    pub(crate) gap: f64,
    /// Mean Kullback-Leibler divergence, in nats.
    pub(crate) kl: f64,
    /// Greedy steps that are at least compared: all of them on the exact path; on the fast path those
    /// before the first that is too close to call.
    pub(crate) greedy_steps: usize,
    /// Perplexity, relative.
    pub(crate) perplexity: f64,
}

/// What f32 activations, weights, keys and values have to give, whatever the model.
pub(crate) const EXACT: Tolerance = Tolerance {
    mean: 1e-4,
    per_position: 2e-3,
    max: 2e-3,
    gap: 0.005,
    kl: 1e-6,
    greedy_steps: 16 * 48,
    perplexity: 1e-4,
};

impl Reference {
    fn load(&self, precision: Precision) -> Option<(CpuExecutor, PathBuf, &Tolerance)> {
        let dir = motet_testkit::shared(self.folder)?;
        let gguf = Gguf::open(&(self.file)()?).unwrap();
        let (kv, tolerance) = match precision {
            Precision::Exact => (KvFormat::F32, &self.exact),
            Precision::Fast => (KvFormat::F16, &self.fast),
        };
        let options = CpuOptions { threads: 2, kv_bytes: 256 << 20, precision, kv, isa: Isa::detect() };
        Some((CpuExecutor::load(&gguf, options).unwrap(), dir, tolerance))
    }
}

fn read(path: PathBuf) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32
}

/// Logits at the recorded positions, and the greedy continuation step by step, up to the first step
/// that is too close to call at this precision.
pub(crate) fn cases(reference: &Reference, precision: Precision) {
    let Some((mut model, dir, tolerance)) = reference.load(precision) else { return };
    let mut deltas = Deltas::default();
    let mut greedy_steps = 0;
    for case in read(dir.join("cases.json"))["cases"].as_array().unwrap() {
        let (name, mut tokens) = (&case["name"], ids(&case["ids"]));
        let prompt = tokens.len();
        tokens.extend(ids(&case["greedy"]));
        let recorded = case["logits"].as_array().unwrap();
        let mut wanted: Vec<usize> =
            recorded.iter().map(|row| row["pos"].as_u64().unwrap() as usize).collect();
        wanted.extend(prompt - 1..tokens.len() - 1);
        let logits = model.score(&tokens, &wanted).unwrap();
        let mut rows = logits.chunks_exact(logits.len() / wanted.len());
        for (expected, row) in recorded.iter().zip(&mut rows) {
            deltas.check(row, expected, tolerance, name);
        }
        let margins = case["greedy_margins"].as_array().unwrap();
        for (step, (margin, row)) in margins.iter().zip(rows).enumerate() {
            if precision == Precision::Fast && margin.as_f64().unwrap() < tolerance.gap {
                break;
            }
            assert_eq!(argmax(row), tokens[prompt + step], "{name} step {step}");
            greedy_steps += 1;
        }
    }
    println!("{precision:?}: {deltas:?}, {greedy_steps} greedy steps equal");
    assert!(deltas.mean_sum / deltas.positions <= tolerance.mean);
    assert!(deltas.agreed / deltas.positions >= 0.9);
    assert!(deltas.kl_sum / deltas.positions <= tolerance.kl);
    assert!(greedy_steps >= tolerance.greedy_steps);
}

/// What was seen over all positions: |ours − reference| of the 20 likeliest tokens.
#[derive(Debug, Default)]
struct Deltas {
    positions: f64,
    mean_sum: f64,
    worst_mean: f64,
    worst: f64,
    agreed: f64,
    kl_sum: f64,
}

impl Deltas {
    fn check(&mut self, row: &[f32], expected: &Value, tolerance: &Tolerance, name: &Value) {
        let at = format!("{name}@{}", expected["pos"]);
        let top: Vec<(u32, f64)> = serde_json::from_value(expected["top"].clone()).unwrap();
        let deltas: Vec<f64> =
            top.iter().map(|(id, logit)| (f64::from(row[*id as usize]) - logit).abs()).collect();
        let mean = deltas.iter().sum::<f64>() / deltas.len() as f64;
        let worst = deltas.iter().copied().fold(0.0, f64::max);
        assert!(mean <= tolerance.per_position && worst <= tolerance.max, "{at}: mean {mean}, max {worst}");
        let agrees = argmax(row) == top[0].0;
        assert!(agrees || top[0].1 - top[1].1 <= tolerance.gap, "{at}: argmax {} for {top:?}", argmax(row));
        self.positions += 1.0;
        self.mean_sum += mean;
        self.worst_mean = self.worst_mean.max(mean);
        self.worst = self.worst.max(worst);
        self.agreed += f64::from(u8::from(agrees));
        self.kl_sum += kl(row, &top, expected["logsumexp"].as_f64().unwrap());
    }
}

/// Divergence of our distribution from the reference's, over its 20 likeliest tokens and the rest as one.
fn kl(row: &[f32], top: &[(u32, f64)], reference_logsumexp: f64) -> f64 {
    let ours = logsumexp(row);
    let (mut sum, mut p_rest, mut q_rest) = (0.0, 1.0, 1.0);
    for (id, logit) in top {
        let (p, q) = ((logit - reference_logsumexp).exp(), (f64::from(row[*id as usize]) - ours).exp());
        sum += p * (p / q).ln();
        p_rest -= p;
        q_rest -= q;
    }
    sum + if p_rest > 1e-6 && q_rest > 1e-6 { p_rest * (p_rest / q_rest).ln() } else { 0.0 }
}

fn logsumexp(row: &[f32]) -> f64 {
    let max = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
    max + row.iter().map(|l| (f64::from(*l) - max).exp()).sum::<f64>().ln()
}

pub(crate) fn perplexity(reference: &Reference, precision: Precision) {
    let count = reference.perplexity_tokens;
    let Some((mut model, dir, tolerance)) = reference.load(precision) else { return };
    let reference = read(dir.join("perplexity.json"));
    let mut tokens = ids(&reference["ids"]);
    tokens.truncate(count);
    let mut expected: Vec<f64> = serde_json::from_value(reference["nll"].clone()).unwrap();
    expected.truncate(tokens.len() - 1);
    let wanted: Vec<usize> = (0..tokens.len() - 1).collect();
    let logits = model.score(&tokens, &wanted).unwrap();
    let rows = logits.chunks_exact(logits.len() / wanted.len());
    let nll = |row: &[f32], id: u32| logsumexp(row) - f64::from(row[id as usize]);
    let sum: f64 = rows.zip(&tokens[1..]).map(|(row, id)| nll(row, *id)).sum();
    let (ours, theirs) = (sum / expected.len() as f64, expected.iter().sum::<f64>() / expected.len() as f64);
    println!("{precision:?}: perplexity {:.4}, reference {:.4}", ours.exp(), theirs.exp());
    assert!((ours.exp() / theirs.exp() - 1.0).abs() <= tolerance.perplexity);
}
