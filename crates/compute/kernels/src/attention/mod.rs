//! Paged causal attention over a KV arena.
//!
//! # Same bits
//! A query takes in the tokens it sees in chunks of 64 at absolute positions, one running maximum per chunk.
//! Every 1024 tokens, at absolute positions too, a segment ends: it has a maximum, a total and a sum of
//! its own, and segments are folded in ascending order. Which queries share a task, whether segments are
//! computed apart, and where blocks lie changes none of it, and what a query computes depends on its own
//! position and the keys and values it sees only.
//!
//! # What is read
//! Blocks that no query of a task sees, beyond the last position or before the window, are not touched, nor
//! are their entries in the table. Queries of several sequences whose tables name the same blocks read
//! them once.

mod block;
mod plan;
mod scratch;
mod task;

use std::ops::Range;

pub use scratch::AttentionScratch;

use crate::kv::{BLOCK_TOKENS, KvArena};
use crate::pool::SendPtr;
use crate::{Isa, ThreadPool};

/// KV blocks of a chunk.
const CHUNK_TILES: usize = 4;
/// Tokens that share one update of the running maximum.
const CHUNK_TOKENS: usize = CHUNK_TILES * BLOCK_TOKENS;
/// Tokens of a segment, a multiple of a chunk.
const SEGMENT_TOKENS: usize = 1024;

/// Sizes of an attention layer.
#[derive(Debug, Clone, Copy)]
pub struct HeadShape {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Consecutive tokens of one sequence: rows `first_row…` of the step, positions `start…`.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// Row of the first token in the step's flat list.
    pub first_row: usize,
    /// Number of tokens.
    pub len: usize,
    /// Absolute position of the first token.
    pub start: usize,
    /// The sequence's blocks, from position 0. Entries before the window of all queries may be anything.
    pub blocks: &'a [u32],
}

/// One layer's attention for the tokens of a step. [`Attention::new`] has the plain kind.
pub struct Attention<'a> {
    /// The layer's keys and values, this step's included.
    pub arena: &'a KvArena,
    /// Factor on the scores, 1/√head_dim as a rule.
    pub scale: f32,
    /// The step's rows of `heads · head_dim`, rotated.
    pub queries: &'a [f32],
    /// Which rows belong to which sequence.
    pub spans: &'a [Span<'a>],
    /// Tokens that a query sees, its own included, at least 1; all up to its own where `None`.
    pub window: Option<usize>,
    /// Scores become `cap · tanh(score / cap)` (Gemma 2).
    pub softcap: Option<f32>,
    /// A score per query head that takes its share of the softmax and has no value (gpt-oss).
    pub sinks: Option<&'a [f32]>,
}

impl<'a> Attention<'a> {
    /// Without window, softcap or sinks.
    pub fn new(arena: &'a KvArena, scale: f32, queries: &'a [f32], spans: &'a [Span<'a>]) -> Self {
        Self { arena, scale, queries, spans, window: None, softcap: None, sinks: None }
    }

    /// Computes `softmax(q · Kᵀ · scale) · V` into rows of `heads · head_dim`.
    ///
    /// # Panics
    /// Unless the spans cover the rows of `queries` and `out` one after the other, their blocks reach their
    /// last token and are in the arena, and there is a sink for each head.
    pub fn run(&self, pool: &ThreadPool, isa: Isa, scratch: &mut AttentionScratch, out: &mut [f32]) {
        self.check(out.len());
        scratch.plan.build(self, pool.threads());
        let (plan, memory) = scratch.split(pool.threads());
        let out = SendPtr(out.as_mut_ptr());
        let task = |task, slot| task::TaskRun {
            layer: self,
            plan,
            task,
            isa,
            slot,
            partials: memory.partials.get(),
            out: out.get(),
        };
        pool.run(plan.tasks.len(), &|index| {
            let slot = memory.take();
            task(plan.tasks[index], slot.start).run();
        });
        if plan.is_split {
            pool.run(plan.folds(self), &|index| {
                let slot = memory.take();
                task(plan.fold(self, index), slot.start).fold();
            });
        }
    }

    /// The positions that the query at `position` sees.
    #[inline(always)]
    fn seen(&self, position: usize) -> Range<usize> {
        let end = position + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// What the unsafe writes of a task rely on: each row has one span, and each span is computed.
    fn check(&self, out: usize) {
        let HeadShape { heads, kv_heads, head_dim } = self.arena.shape();
        assert!(kv_heads > 0 && head_dim > 0 && heads.is_multiple_of(kv_heads), "query heads in groups");
        assert!(self.window != Some(0), "a window of at least one token");
        assert!(self.sinks.is_none_or(|sinks| sinks.len() == heads), "a sink for each head");
        let mut row = 0;
        for span in self.spans {
            assert_eq!(span.first_row, row, "spans one after the other");
            let end = span.start.checked_add(span.len);
            assert!(
                end.is_some_and(|end| end.div_ceil(BLOCK_TOKENS) <= span.blocks.len()),
                "blocks of a span"
            );
            row += span.len;
        }
        assert!(
            out == self.queries.len() && Some(out) == row.checked_mul(heads * head_dim),
            "rows of the output"
        );
    }
}

#[cfg(test)]
mod tests;
