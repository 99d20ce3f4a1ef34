//! An allocator that knows the most bytes a thread held.

#![allow(unreachable_pub)] // shared by several test crates

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;

/// Counts the bytes a thread holds and the most it held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that is ending has no counters left, and nothing to measure.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count(block.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, start: *mut u8, block: Block) {
        count(-(block.size() as isize));
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(start, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes `work` held at once, beyond what was held before.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}
