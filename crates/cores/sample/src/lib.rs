//! Logits to token: pure, counter-based sampling.
