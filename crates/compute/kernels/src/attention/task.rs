//! One task: the members of a group walk the chunks of their sequences.

use std::ops::Range;

use super::block::{Element, MOST_TOGETHER, Scoring, Seen, State, Tiles, Together};
use super::plan::{Group, Plan, Task};
use super::{Attention, CHUNK_TILES, CHUNK_TOKENS, HeadShape, SEGMENT_TOKENS};
use crate::Isa;
use crate::kv::{BLOCK_TOKENS, KvFormat};
use crate::simd::{F32x16, LANES, SimdKernel, canonical, on_simd, prefetch};

/// A task and the memory it alone uses.
#[derive(Clone, Copy)]
pub(super) struct TaskRun<'a> {
    pub(super) layer: &'a Attention<'a>,
    pub(super) plan: &'a Plan,
    pub(super) task: Task,
    pub(super) isa: Isa,
    /// A slot of the scratch.
    pub(super) slot: *mut f32,
    /// All partial states of the call; this task touches its own.
    pub(super) partials: *mut f32,
    /// All rows of the output; this task writes its members' heads.
    pub(super) out: *mut f32,
}

/// Neighbouring members whose blocks of a chunk are the same.
struct Run {
    members: Range<usize>,
    /// The blocks that any of them sees.
    blocks: [Option<u32>; CHUNK_TILES],
}

impl<'a> TaskRun<'a> {
    /// Walks the task's segments; the group's output is written unless others compute some of them.
    pub(super) fn run(self) {
        let (first, second) = (self.slot, self.states() * State::floats(self.shape().head_dim));
        let segments = match self.task.segment {
            Some(segment) => segment..segment + 1,
            None => self.group().segments.clone(),
        };
        let has_one = segments.len() == 1;
        // SAFETY: a slot holds the states of a group twice.
        let folded = unsafe { first.add(second) };
        for segment in segments.clone() {
            let rows = match self.task.segment {
                // SAFETY: inside the partial states, which are as many as the plan asked for.
                Some(_) => unsafe { self.partials.add(self.plan.partial(self.layer, &self.task, segment)) },
                None => first,
            };
            self.absorb_segment(segment, rows);
            if !has_one {
                self.fold_segment(segment, (rows, folded));
            }
        }
        if self.task.segment.is_none() {
            self.finish(if has_one { first } else { folded });
        }
    }

    /// Folds what the tasks of a group's segments found, and writes the output.
    pub(super) fn fold(self) {
        for segment in self.group().segments.clone() {
            // SAFETY: inside the partial states, which are as many as the plan asked for.
            let rows = unsafe { self.partials.add(self.plan.partial(self.layer, &self.task, segment)) };
            self.fold_segment(segment, (rows, self.slot));
        }
        self.finish(self.slot);
    }

    #[inline(always)]
    fn shape(&self) -> HeadShape {
        self.layer.arena.shape()
    }

    #[inline(always)]
    fn group(&self) -> &'a Group {
        &self.plan.groups[self.task.group]
    }

    /// Query heads of the KV head.
    #[inline(always)]
    fn heads(&self) -> usize {
        self.shape().heads / self.shape().kv_heads
    }

    #[inline(always)]
    fn states(&self) -> usize {
        self.group().members.len() * self.heads()
    }

    #[inline(always)]
    fn state(&self, rows: *mut f32, index: usize) -> State {
        debug_assert!(index < self.states());
        // SAFETY: rows are those of a group's states, one after the other.
        State(unsafe { rows.add(index * State::floats(self.shape().head_dim)) })
    }

    /// Absolute positions that the member of a state sees.
    #[inline(always)]
    fn seen(&self, state: usize) -> Range<usize> {
        let member = self.group().members.start + state / self.heads();
        self.layer.seen(self.plan.members[member].position)
    }

    /// Row and head of a state, as an index of heads in the step's queries and output.
    #[inline(always)]
    fn head(&self, state: usize) -> usize {
        let (member, heads) = (self.group().members.start + state / self.heads(), self.heads());
        self.plan.members[member].row * self.shape().heads + self.task.kv_head * heads + state % heads
    }

    /// Starts all states and takes a segment into those that see some of it.
    fn absorb_segment(&self, segment: usize, rows: *mut f32) {
        let (mut begin, mut end) = (usize::MAX, 0);
        for index in 0..self.states() {
            let seen = self.seen(index);
            (begin, end) = (begin.min(seen.start), end.max(seen.end));
            // SAFETY: the row is this task's.
            unsafe { self.state(rows, index).start(self.shape().head_dim) };
        }
        let first = begin.max(segment * SEGMENT_TOKENS) / CHUNK_TOKENS;
        let end = end.min((segment + 1) * SEGMENT_TOKENS).div_ceil(CHUNK_TOKENS);
        for chunk in first..end {
            let mut member = self.group().members.start;
            while let Some(run) = self.next_run(chunk, member) {
                member = run.members.end;
                self.absorb(chunk, &run, rows);
            }
        }
    }

    /// Adds a segment to the states that see some of it: to nothing at the first one.
    fn fold_segment(&self, segment: usize, (rows, folded): (*mut f32, *mut f32)) {
        let head_dim = self.shape().head_dim;
        for index in 0..self.states() {
            let seen = self.seen(index);
            let (first, end) = (seen.start / SEGMENT_TOKENS, seen.end.div_ceil(SEGMENT_TOKENS));
            let (from, to) = (self.state(rows, index), self.state(folded, index));
            // SAFETY: both rows are this task's.
            unsafe {
                if segment == first {
                    from.copy_to(to, head_dim);
                } else if first < segment && segment < end {
                    to.fold(from, head_dim);
                }
            }
        }
    }

    /// Writes the output of all states.
    fn finish(&self, rows: *mut f32) {
        let head_dim = self.shape().head_dim;
        for index in 0..self.states() {
            let (state, head) = (self.state(rows, index), self.head(index));
            let sink = self.layer.sinks.map(|sinks| sinks[head % self.shape().heads]);
            // SAFETY: the row is this task's, and so is the head of the output, whose size was asserted.
            unsafe {
                let inverse = state.finish(sink, head_dim);
                let sum = std::slice::from_raw_parts(state.sum(), head_dim);
                let out = std::slice::from_raw_parts_mut(self.out.add(head * head_dim), head_dim);
                out.iter_mut().zip(sum).for_each(|(out, sum)| *out = canonical(sum * inverse));
            }
        }
    }

    /// The part of a chunk that a position's query sees.
    #[inline(always)]
    fn seen_of_chunk(&self, chunk: usize, position: usize) -> Option<Seen> {
        let seen = self.layer.seen(position);
        let first = seen.start.max(chunk * CHUNK_TOKENS);
        let end = seen.end.min((chunk + 1) * CHUNK_TOKENS);
        (first < end).then(|| Seen { first: first - chunk * CHUNK_TOKENS, end: end - chunk * CHUNK_TOKENS })
    }

    /// The next members, from `first` on, that see the same blocks of a chunk.
    fn next_run(&self, chunk: usize, first: usize) -> Option<Run> {
        let mut run = Run { members: first..first, blocks: [None; CHUNK_TILES] };
        for index in first..self.group().members.end {
            let member = &self.plan.members[index];
            let Some(seen) = self.seen_of_chunk(chunk, member.position) else {
                if run.members.is_empty() {
                    continue;
                }
                break;
            };
            // Entries of the table before the window may be anything.
            let mut blocks = run.blocks;
            let mut is_same = true;
            let tiles = seen.first / BLOCK_TOKENS..seen.end.div_ceil(BLOCK_TOKENS);
            let table = &self.layer.spans[member.span].blocks[chunk * CHUNK_TILES..];
            for (known, block) in blocks[tiles.clone()].iter_mut().zip(&table[tiles]) {
                is_same &= known.is_none_or(|other| other == *block);
                *known = Some(*block);
            }
            if !is_same {
                break;
            }
            let start = if run.members.is_empty() { index } else { run.members.start };
            run = Run { members: start..index + 1, blocks };
        }
        (!run.members.is_empty()).then_some(run)
    }

    /// Takes a chunk into the states of a run. A few read the blocks themselves; many share a copy as floats.
    fn absorb(&self, chunk: usize, run: &Run, rows: *mut f32) {
        let is_direct =
            run.members.len() * self.heads() <= MOST_TOGETHER && self.shape().head_dim.is_multiple_of(LANES);
        match self.layer.arena.format() {
            KvFormat::F16 if is_direct => {
                self.absorb_tiles::<u16>(chunk, run, (&self.tiles(chunk, run), rows));
            }
            KvFormat::Int8 if is_direct => {
                self.absorb_tiles::<i8>(chunk, run, (&self.tiles(chunk, run), rows));
            }
            format => {
                let tiles = match format {
                    KvFormat::F32 if self.shape().head_dim.is_multiple_of(LANES) => self.tiles(chunk, run),
                    KvFormat::F32 => self.convert::<f32>(self.tiles(chunk, run)),
                    KvFormat::F16 => self.convert::<u16>(self.tiles(chunk, run)),
                    KvFormat::Int8 => self.convert::<i8>(self.tiles(chunk, run)),
                };
                self.absorb_tiles::<f32>(chunk, run, (&tiles, rows));
            }
        }
    }

    /// The tiles where they lie in the arena.
    fn tiles<E>(&self, chunk: usize, run: &Run) -> Tiles<E> {
        let head_dim = self.shape().head_dim;
        let mut tiles = Tiles {
            keys: [std::ptr::null(); CHUNK_TILES],
            values: [std::ptr::null(); CHUNK_TILES],
            value_stride: head_dim,
            next: [std::ptr::null(); CHUNK_TILES],
            scales: [std::ptr::null(); CHUNK_TILES],
        };
        let elements = head_dim * BLOCK_TOKENS;
        let first = &self.plan.members[run.members.start];
        for (tile, block) in run.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            let next = self.layer.spans[first.span].blocks.get((chunk + 1) * CHUNK_TILES + tile);
            tiles.next[tile] = self.layer.arena.hint(*next.unwrap_or(block), self.task.kv_head).cast();
            let section = self.layer.arena.section(*block, self.task.kv_head);
            debug_assert!(section.len() >= 2 * elements * size_of::<E>());
            let keys = section.as_ptr().cast::<E>();
            tiles.keys[tile] = keys;
            // SAFETY: keys, values and scales are parts of the section.
            unsafe {
                tiles.values[tile] = keys.add(elements);
                if self.layer.arena.format() == KvFormat::Int8 {
                    tiles.scales[tile] = section.as_ptr().add(2 * elements).cast();
                }
            }
        }
        tiles
    }

    /// Copies tiles as floats into the slot, rows of values padded to whole vectors.
    fn convert<E: Element>(&self, from: Tiles<E>) -> Tiles<f32> {
        let head_dim = self.shape().head_dim;
        let value_stride = head_dim.next_multiple_of(LANES);
        let (keys, values) = ([std::ptr::null(); CHUNK_TILES], [std::ptr::null(); CHUNK_TILES]);
        let mut tiles = Tiles { keys, values, value_stride, next: keys, scales: from.scales };
        for tile in (0..CHUNK_TILES).filter(|tile| !from.keys[*tile].is_null()) {
            // SAFETY: after the states a slot holds a chunk's keys and padded values.
            let (keys, values) = unsafe {
                let states = 2 * self.states() * State::floats(head_dim);
                let keys = self.slot.add(states + tile * BLOCK_TOKENS * (head_dim + value_stride));
                (keys, keys.add(head_dim * BLOCK_TOKENS))
            };
            (tiles.keys[tile], tiles.values[tile]) = (keys, values);
            let (from, next) = ((from.keys[tile], from.values[tile]), from.next[tile]);
            on_simd(self.isa, Convert { from, next, to: (keys, values), head_dim });
        }
        tiles
    }

    /// Takes a chunk into the states of a run, a few at a time.
    fn absorb_tiles<E: Element>(&self, chunk: usize, run: &Run, (tiles, rows): (&Tiles<E>, *mut f32)) {
        let first = self.group().members.start;
        let mut state = (run.members.start - first) * self.heads();
        let end = (run.members.end - first) * self.heads();
        while state < end {
            state += match end - state {
                1 => self.absorb_together::<E, 1>(chunk, state, (tiles, rows)),
                2 => self.absorb_together::<E, 2>(chunk, state, (tiles, rows)),
                3 | 5 => self.absorb_together::<E, 3>(chunk, state, (tiles, rows)),
                4 | 7 | 8 => self.absorb_together::<E, 4>(chunk, state, (tiles, rows)),
                _ => self.absorb_together::<E, MOST_TOGETHER>(chunk, state, (tiles, rows)),
            };
        }
    }

    fn absorb_together<E: Element, const N: usize>(
        &self,
        chunk: usize,
        first: usize,
        (tiles, rows): (&Tiles<E>, *mut f32),
    ) -> usize {
        let Attention { scale, softcap, queries, .. } = *self.layer;
        let head_dim = self.shape().head_dim;
        let mut together = Together {
            tiles,
            scoring: Scoring { scale, softcap, head_dim },
            states: [State(std::ptr::null_mut()); N],
            queries: [std::ptr::null(); N],
            seen: [Seen::default(); N],
        };
        for n in 0..N {
            let member = self.group().members.start + (first + n) / self.heads();
            // All members of a run see some of the chunk.
            let seen = self.seen_of_chunk(chunk, self.plan.members[member].position);
            together.seen[n] = seen.unwrap_or_default();
            together.states[n] = self.state(rows, first + n);
            together.queries[n] = queries[self.head(first + n) * head_dim..][..head_dim].as_ptr();
        }
        // Rows are this task's, and the tiles that are seen were found in the arena.
        on_simd(self.isa, together);
        N
    }
}

/// Copies a tile's keys and values as floats. The pointers are valid for a tile, the values' target for
/// rows padded to whole vectors.
struct Convert<E> {
    from: (*const E, *const E),
    /// What is asked for in advance.
    next: *const E,
    to: (*mut f32, *mut f32),
    head_dim: usize,
}

impl<E: Element> SimdKernel for Convert<E> {
    #[inline(always)]
    fn run<F: F32x16>(self) {
        let Self { from, next, to, head_dim } = self;
        for line in (0..2 * head_dim * BLOCK_TOKENS * size_of::<E>()).step_by(64) {
            prefetch(next.cast::<u8>().wrapping_add(line));
        }
        // SAFETY: as the fields say.
        unsafe {
            for at in (0..head_dim * BLOCK_TOKENS).step_by(LANES) {
                E::load::<F>(from.0.add(at)).store(to.0.add(at));
            }
            for token in 0..BLOCK_TOKENS {
                let row = to.1.add(token * head_dim.next_multiple_of(LANES));
                convert_row::<F, E>(from.1.add(token * head_dim), row, head_dim);
            }
        }
    }
}

/// One row of values, zeros after it up to a whole vector.
///
/// # Safety
/// `from` is valid for `head_dim` elements, `to` for as many floats in whole vectors.
#[inline(always)]
unsafe fn convert_row<F: F32x16, E: Element>(from: *const E, to: *mut f32, head_dim: usize) {
    let whole = head_dim / LANES * LANES;
    // SAFETY: as the caller says.
    unsafe {
        for at in (0..whole).step_by(LANES) {
            E::load::<F>(from.add(at)).store(to.add(at));
        }
        if whole < head_dim {
            let mut rest = [E::default(); LANES];
            rest.as_mut_ptr().copy_from_nonoverlapping(from.add(whole), head_dim - whole);
            E::load::<F>(rest.as_ptr()).store(to.add(whole));
        }
    }
}
