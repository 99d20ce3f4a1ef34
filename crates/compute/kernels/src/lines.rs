//! Zeroed memory that starts on a cache line, in huge pages where it is large.
//!
//! # Invariants
//! - Two `Lines` never share a byte: a region is handed out from its start on, each byte once.
//! - A region lives as long as one of the `Lines` in it. Its memory is never handed out again, so what is
//!   handed out is still zero, and pages that nobody wrote to take no memory.
//! - Where the system gives no mapping, plain memory takes its place.

use std::alloc::Layout;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::pages::Mapping;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Pieces from this size on come from mappings: the page they may share with nobody is small beside them.
const LEAST_MAPPED: usize = 16 << 10;
/// Bytes of a region that many pieces share: 16 huge pages.
const REGION: usize = 32 << 20;
/// Pieces from this size on have a mapping to themselves, of which less than an eighth is left over.
const LEAST_ALONE: usize = 16 << 20;

/// Which pages hold memory, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Huge pages where the system has them, spread over the NUMA nodes: for weights, which all
    /// threads read.
    Weights,
    /// Huge pages too, each on the node of the thread that first writes to it: for keys and values.
    FirstTouch,
    /// The system's usual pages, for what is mostly left untouched.
    Small,
}

/// Zeroed bytes that start on a cache line, so that a panel's vectors never straddle two.
pub(crate) struct Lines {
    bytes: Bytes,
    /// Of the first byte, in `bytes`.
    start: usize,
    len: usize,
}

enum Bytes {
    /// Room for `len` bytes from the first cache line in it on.
    Plain(Vec<u8>),
    Mapped(Arc<Mapping>),
}

impl Lines {
    /// Memory for weights.
    pub(crate) fn zeroed(len: usize) -> Self {
        let usual = || Self::plain(vec![0; len + LINE], len);
        if len < LEAST_MAPPED { usual() } else { Self::mapped(len, Pages::Weights).unwrap_or_else(usual) }
    }

    /// Memory for keys and values, `None` when the system refuses.
    pub(crate) fn try_zeroed(len: usize) -> Option<Self> {
        Self::with_pages(len, Pages::FirstTouch)
    }

    /// Memory of the kind that is asked for where the system has it, `None` when it has none at all.
    ///
    /// Zero pages are taken from the system when first written.
    pub(crate) fn with_pages(len: usize, pages: Pages) -> Option<Self> {
        if pages != Pages::Small
            && len >= LEAST_MAPPED
            && let Some(lines) = Self::mapped(len, pages)
        {
            return Some(lines);
        }
        // The allocator gives pages as they are touched only where no alignment is asked for: with one it
        // zeroes, and so occupies, all of them.
        let layout = Layout::array::<u8>(len.checked_add(LINE)?).ok()?;
        // SAFETY: the layout is not empty, zero bytes are valid, and the vector frees with the layout it was
        // allocated with.
        let bytes = unsafe {
            let start = std::alloc::alloc_zeroed(layout);
            (!start.is_null()).then(|| Vec::from_raw_parts(start, layout.size(), layout.size()))
        }?;
        Some(Self::plain(bytes, len))
    }

    fn plain(bytes: Vec<u8>, len: usize) -> Self {
        // The vector is never grown, so its buffer stays where it is.
        let start = bytes.as_ptr().align_offset(LINE).min(LINE);
        Self { bytes: Bytes::Plain(bytes), start, len }
    }

    fn mapped(len: usize, pages: Pages) -> Option<Self> {
        let lines = |(mapping, start)| Self { bytes: Bytes::Mapped(mapping), start, len };
        if len >= LEAST_ALONE {
            return Some(lines((Arc::new(Mapping::new(len, pages)?), 0)));
        }
        carve(len, pages).map(lines)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Plain(bytes) => &bytes[self.start..][..self.len],
            // SAFETY: the range is inside the mapping, which lives as long as `self`, and only `self`, which
            // is borrowed, refers to it.
            Bytes::Mapped(mapping) => unsafe {
                std::slice::from_raw_parts(mapping.start().add(self.start), self.len)
            },
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::Plain(bytes) => &mut bytes[self.start..][..self.len],
            // SAFETY: as above, and `self` is borrowed exclusively.
            Bytes::Mapped(mapping) => unsafe {
                std::slice::from_raw_parts_mut(mapping.start().add(self.start), self.len)
            },
        }
    }
}

/// A region with some room left. Weak, so that the last `Lines` in it frees it.
struct Open {
    region: Weak<Mapping>,
    used: usize,
}

/// The open regions of [`Pages::Weights`] and [`Pages::FirstTouch`].
static OPEN: Mutex<[Open; 2]> = Mutex::new([const { Open { region: Weak::new(), used: 0 } }; 2]);

/// `len` bytes, at most [`REGION`], of a region that others share.
fn carve(len: usize, pages: Pages) -> Option<(Arc<Mapping>, usize)> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = &mut open[usize::from(pages == Pages::FirstTouch)];
    let size = len.next_multiple_of(LINE);
    if let Some(region) = open.region.upgrade()
        && open.used + size <= REGION
    {
        let start = open.used;
        open.used += size;
        return Some((region, start));
    }
    let region = Arc::new(Mapping::new(REGION, pages)?);
    *open = Open { region: Arc::downgrade(&region), used: size };
    Some((region, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Pages; 3] = [Pages::Weights, Pages::FirstTouch, Pages::Small];

    #[test]
    fn begins_on_a_line_and_is_zero() {
        for len in [0, 1, 63, 64, 1000, 20_000, LEAST_ALONE - 1, LEAST_ALONE + 5] {
            let of_kinds = KINDS.map(|pages| Lines::with_pages(len, pages).unwrap());
            for mut lines in of_kinds.into_iter().chain([Lines::zeroed(len), Lines::try_zeroed(len).unwrap()])
            {
                assert_eq!(lines.as_slice().len(), len);
                assert!(lines.as_slice().iter().all(|byte| *byte == 0));
                assert!(len == 0 || lines.as_slice().as_ptr().addr().is_multiple_of(LINE));
                lines.as_mut_slice().fill(1);
            }
        }
        assert!(Lines::try_zeroed(usize::MAX).is_none());
    }

    /// Pieces of one region, written by several threads and dropped in any order.
    #[test]
    fn pieces_are_disjoint_and_never_come_back_used() {
        std::thread::scope(|scope| {
            for id in 1..5u8 {
                scope.spawn(move || {
                    let mut kept: Vec<Lines> = Vec::new();
                    for round in 0..60usize {
                        let mut lines = Lines::zeroed(LEAST_MAPPED + round * 7_001);
                        assert!(lines.as_slice().iter().all(|byte| *byte == 0));
                        lines.as_mut_slice().fill(id);
                        kept.push(lines);
                        if round % 3 == 0 {
                            kept.swap_remove(round % kept.len());
                        }
                        assert!(kept.iter().all(|lines| lines.as_slice().iter().all(|byte| *byte == id)));
                    }
                });
            }
        });
    }

    /// A gibibyte that is asked for and not touched is not resident.
    #[test]
    #[cfg(target_os = "linux")]
    fn untouched_pages_take_no_memory() {
        let resident = || -> usize {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            status.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        for pages in KINDS {
            let before = resident();
            let lines = Lines::with_pages(1 << 30, pages).unwrap();
            let grown = resident().saturating_sub(before);
            // Other tests take memory meanwhile.
            assert!(grown < 200 << 20, "{pages:?}: {grown} bytes");
            drop(lines);
        }
    }
}
