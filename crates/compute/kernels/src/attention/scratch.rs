//! Memory that stays between calls, so that a step allocates nothing once it has had its largest.

use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::Plan;
use crate::pool::SendPtr;
use crate::simd::LANES;

/// One vector, on a cache line of its own.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read and written as floats")] [f32; LANES]);

/// What [`super::Attention::run`] works in; made once and used for all layers and steps.
#[derive(Default)]
pub struct AttentionScratch {
    pub(super) plan: Plan,
    /// States of segments that were computed apart.
    partials: Vec<Line>,
    /// A part for each thread.
    slots: Vec<Line>,
    is_taken: Vec<AtomicBool>,
}

/// The parts of the scratch that tasks use, beside the plan.
pub(super) struct Memory<'a> {
    pub(super) partials: SendPtr<f32>,
    slots: SendPtr<f32>,
    slot_floats: usize,
    is_taken: &'a [AtomicBool],
}

impl AttentionScratch {
    /// The plan, and memory of the sizes it asks for, for as many threads.
    pub(super) fn split(&mut self, threads: usize) -> (&Plan, Memory<'_>) {
        let grow = |lines: &mut Vec<Line>, floats: usize| {
            let needed = floats.div_ceil(LANES);
            if lines.len() < needed {
                lines.resize(needed, Line([0.0; LANES]));
            }
        };
        let slot_floats = self.plan.slot_floats.next_multiple_of(LANES);
        grow(&mut self.slots, threads * slot_floats);
        grow(&mut self.partials, self.plan.partial_floats);
        if self.is_taken.len() < threads {
            self.is_taken.resize_with(threads, AtomicBool::default);
        }
        let memory = Memory {
            partials: SendPtr(self.partials.as_mut_ptr().cast()),
            slots: SendPtr(self.slots.as_mut_ptr().cast()),
            slot_floats,
            is_taken: &self.is_taken[..threads],
        };
        (&self.plan, memory)
    }
}

impl Memory<'_> {
    /// A slot that no other task has while the guard lives. There is one for each thread, so that the search
    /// ends.
    pub(super) fn take(&self) -> Slot<'_> {
        loop {
            for (index, is_taken) in self.is_taken.iter().enumerate() {
                if !is_taken.swap(true, Ordering::Acquire) {
                    // SAFETY: inside the slots, which hold one of this size for each flag.
                    let start = unsafe { self.slots.get().add(index * self.slot_floats) };
                    return Slot { start, is_taken };
                }
            }
            std::hint::spin_loop();
        }
    }
}

/// One thread's part of the scratch.
pub(super) struct Slot<'a> {
    /// The plan's `slot_floats` floats, on a cache line.
    pub(super) start: *mut f32,
    is_taken: &'a AtomicBool,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.is_taken.store(false, Ordering::Release);
    }
}
