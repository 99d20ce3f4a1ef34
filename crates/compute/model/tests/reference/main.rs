//! Real models against logits, continuations and perplexity computed by transformers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod check;

use check::{EXACT, Reference, Tolerance};
use motet_model::Precision::{Exact, Fast};

// The fast path is held to the mean, and the KL divergence, that llama.cpp has on the same files.
const SMOLLM2: Reference = Reference {
    folder: "reference/smollm2",
    file: motet_testkit::default_model,
    exact: EXACT,
    fast: Tolerance {
        mean: 0.22,
        per_position: 1.8,
        max: 4.0,
        gap: 0.6,
        kl: 0.0044,
        greedy_steps: 80,
        perplexity: 0.01,
    },
    perplexity_tokens: usize::MAX,
};

const GEMMA3: Reference = Reference {
    folder: "reference/gemma3",
    file: motet_testkit::gemma3_model,
    exact: EXACT,
    fast: Tolerance {
        mean: 0.28,
        per_position: 2.5,
        max: 7.0,
        gap: 0.6,
        kl: 0.0085,
        greedy_steps: 40,
        perplexity: 0.015,
    },
    perplexity_tokens: 640,
};

#[test]
fn smollm2_exact_path() {
    check::cases(&SMOLLM2, Exact);
}

#[test]
fn smollm2_fast_path() {
    check::cases(&SMOLLM2, Fast);
}

#[test]
fn smollm2_exact_perplexity() {
    check::perplexity(&SMOLLM2, Exact);
}

#[test]
fn smollm2_fast_perplexity() {
    check::perplexity(&SMOLLM2, Fast);
}

#[test]
fn gemma3_exact_path() {
    check::cases(&GEMMA3, Exact);
}

#[test]
fn gemma3_fast_path() {
    check::cases(&GEMMA3, Fast);
}

#[test]
fn gemma3_exact_perplexity() {
    check::perplexity(&GEMMA3, Exact);
}

#[test]
fn gemma3_fast_perplexity() {
    check::perplexity(&GEMMA3, Fast);
}
