//! What is computed by which task. Nothing here changes a bit of the result.

use std::cmp::{Ordering, Reverse};
use std::ops::Range;

use super::block::State;
use super::{Attention, CHUNK_TILES, CHUNK_TOKENS, HeadShape, SEGMENT_TOKENS, Span};
use crate::kv::BLOCK_TOKENS;
use crate::simd::LANES;

/// States of a task at most: their rows and the tiles they share stay in the second-level cache.
const MOST_STATES: usize = 96;
/// Queries of a task at least, where there are as many: tiles are converted once per task.
const LEAST_MEMBERS: usize = 8;
/// Tasks per thread to aim at, so that a slower thread takes fewer.
const TASKS_PER_THREAD: usize = 4;
/// Tokens up to which a span may share a task with other sequences.
const SHORT: usize = 4;
/// Most floats of segments that are computed apart: 16 MiB.
const MOST_PARTIALS: usize = 1 << 22;

/// A query position of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// In the step's flat list.
    pub(super) row: usize,
    pub(super) position: usize,
    /// Index of the span.
    pub(super) span: usize,
}

/// Members that walk their tiles together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) members: Range<usize>,
    /// Segments that any of them sees.
    pub(super) segments: Range<usize>,
    /// Floats before the states that are kept per KV head and segment.
    partials: usize,
}

/// A group and a KV head, all segments or one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) group: usize,
    pub(super) kv_head: usize,
    pub(super) segment: Option<usize>,
    cost: usize,
}

/// The tasks of a call.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) members: Vec<Member>,
    pub(super) groups: Vec<Group>,
    pub(super) tasks: Vec<Task>,
    /// Indices of short spans, those with the same blocks side by side.
    order: Vec<usize>,
    /// What tests set in place of the choice.
    pub(super) forced_split: Option<bool>,
    /// Whether segments are computed apart and folded afterwards.
    pub(super) is_split: bool,
    pub(super) partial_floats: usize,
    pub(super) slot_floats: usize,
}

impl Plan {
    pub(super) fn build(&mut self, layer: &Attention<'_>, threads: usize) {
        let HeadShape { heads, kv_heads, head_dim } = layer.arena.shape();
        let rows: usize = layer.spans.iter().map(|span| span.len).sum();
        let wanted = (rows * kv_heads).div_ceil(threads * TASKS_PER_THREAD);
        let most = (MOST_STATES / (heads / kv_heads)).max(1);
        self.group_members(layer, wanted.max(LEAST_MEMBERS).min(most));
        self.list_tasks(layer, threads);
        let states = self.groups.iter().map(|group| group.members.len()).max().unwrap_or(0);
        let states = states * (heads / kv_heads);
        let tiles = CHUNK_TOKENS * (head_dim + head_dim.next_multiple_of(LANES));
        self.slot_floats = 2 * states * State::floats(head_dim) + tiles;
    }

    /// Cuts long spans into groups and puts short ones that begin alike together.
    fn group_members(&mut self, layer: &Attention<'_>, most: usize) {
        self.members.clear();
        self.groups.clear();
        self.order.clear();
        for (index, span) in layer.spans.iter().enumerate() {
            if span.len <= SHORT && span.len > 0 {
                self.order.push(index);
            } else {
                self.push(index, span);
                self.cut(layer, most);
            }
        }
        if self.order.len() > 1 {
            self.order.sort_unstable_by(|a, b| compare(layer, &layer.spans[*a], &layer.spans[*b]));
        }
        for i in 0..self.order.len() {
            let index = self.order[i];
            let span = &layer.spans[index];
            if i > 0 && !begin_alike(layer, &layer.spans[self.order[i - 1]], span) {
                self.cut(layer, most);
            }
            self.push(index, span);
        }
        self.cut(layer, most);
    }

    fn push(&mut self, index: usize, span: &Span<'_>) {
        let member = |i| Member { row: span.first_row + i, position: span.start + i, span: index };
        self.members.extend((0..span.len).map(member));
    }

    /// Makes equal groups of the members that are in none.
    fn cut(&mut self, layer: &Attention<'_>, most: usize) {
        let mut first = self.groups.last().map_or(0, |group| group.members.end);
        let mut left = self.members.len() - first;
        while left > 0 {
            let len = left.div_ceil(left.div_ceil(most));
            let members = first..first + len;
            let seen = self.members[members.clone()].iter().map(|member| layer.seen(member.position));
            let (begin, end) =
                seen.fold((usize::MAX, 0), |(a, b), seen| (a.min(seen.start), b.max(seen.end)));
            let segments = begin / SEGMENT_TOKENS..end.div_ceil(SEGMENT_TOKENS);
            self.groups.push(Group { members, segments, partials: 0 });
            first += len;
            left -= len;
        }
    }

    fn list_tasks(&mut self, layer: &Attention<'_>, threads: usize) {
        let HeadShape { heads, kv_heads, head_dim } = layer.arena.shape();
        let mut floats = 0;
        let row = heads / kv_heads * State::floats(head_dim);
        for group in &mut self.groups {
            group.partials = floats;
            floats += group.members.len() * row * kv_heads * group.segments.len();
        }
        let is_long = self.groups.iter().any(|group| group.segments.len() > 1);
        let has_few = self.groups.len() * kv_heads < threads * TASKS_PER_THREAD;
        self.is_split = self.forced_split.unwrap_or(has_few) && is_long && floats <= MOST_PARTIALS;
        self.partial_floats = if self.is_split { floats } else { 0 };
        self.tasks.clear();
        for (index, group) in self.groups.iter().enumerate() {
            let cost = group.members.len();
            for kv_head in 0..kv_heads {
                let task = Task { group: index, kv_head, segment: None, cost };
                if self.is_split {
                    let part = |segment| Task { segment: Some(segment), ..task };
                    self.tasks.extend(group.segments.clone().map(part));
                } else {
                    // Groups of one segment differ in length too; the last member's position tells.
                    let last = self.members[group.members.end - 1].position;
                    let tokens = (last + 1).min(group.segments.len() * SEGMENT_TOKENS);
                    self.tasks.push(Task { cost: cost * (tokens + CHUNK_TOKENS), ..task });
                }
            }
        }
        // The longest first, so that none is left alone at the end.
        self.tasks.sort_unstable_by_key(|task| (Reverse(task.cost), task.group, task.kv_head, task.segment));
    }

    /// Tasks that fold what was computed apart.
    pub(super) fn folds(&self, layer: &Attention<'_>) -> usize {
        self.groups.len() * layer.arena.shape().kv_heads
    }

    pub(super) fn fold(&self, layer: &Attention<'_>, index: usize) -> Task {
        let kv_heads = layer.arena.shape().kv_heads;
        Task { group: index / kv_heads, kv_head: index % kv_heads, segment: None, cost: 0 }
    }

    /// Floats before the states of a group's segment.
    pub(super) fn partial(&self, layer: &Attention<'_>, task: &Task, segment: usize) -> usize {
        let HeadShape { heads, kv_heads, head_dim } = layer.arena.shape();
        let group = &self.groups[task.group];
        let states = group.members.len() * (heads / kv_heads);
        let index = task.kv_head * group.segments.len() + segment - group.segments.start;
        group.partials + index * states * State::floats(head_dim)
    }
}

/// The first of a span's blocks that its first query sees, and those after it up to the last query's.
fn seen_blocks<'a>(layer: &Attention<'_>, span: &Span<'a>) -> (usize, &'a [u32]) {
    let first = layer.seen(span.start).start / BLOCK_TOKENS;
    (first, &span.blocks[first..(span.start + span.len).div_ceil(BLOCK_TOKENS)])
}

/// Puts spans with a common beginning side by side. Sequences that share a block share those before it, so
/// a few blocks, ever farther apart, tell as much as all.
fn compare(layer: &Attention<'_>, a: &Span<'_>, b: &Span<'_>) -> Ordering {
    let ((first_a, a), (first_b, b)) = (seen_blocks(layer, a), seen_blocks(layer, b));
    let mut order = first_a.cmp(&first_b);
    let mut at = 0;
    while order == Ordering::Equal && at < a.len().max(b.len()) {
        order = a.get(at).cmp(&b.get(at));
        at += (at / 2).max(1);
    }
    order
}

/// Whether two spans have the first chunk that they see in common.
fn begin_alike(layer: &Attention<'_>, a: &Span<'_>, b: &Span<'_>) -> bool {
    let ((first_a, a), (first_b, b)) = (seen_blocks(layer, a), seen_blocks(layer, b));
    first_a == first_b && a.len().min(b.len()) >= CHUNK_TILES && a[..CHUNK_TILES] == b[..CHUNK_TILES]
}
