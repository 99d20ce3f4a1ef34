use std::alloc::Layout;

/// Zeroed bytes that start on a cache line, so that a panel's vectors never straddle two.
pub(crate) struct Lines {
    lines: Vec<Line>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Lines {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self { lines: vec![Line([0; 64]); len.div_ceil(64)], len }
    }

    /// Zero pages straight from the allocator, which takes them from the system when first written.
    /// `None` when it refuses.
    pub(crate) fn try_zeroed(len: usize) -> Option<Self> {
        let count = len.div_ceil(64);
        let layout = Layout::array::<Line>(count).ok()?;
        if count == 0 {
            return Some(Self::zeroed(0));
        }
        // SAFETY: the layout is not empty, zero bytes are a valid `Line`, and the vector frees with the
        // layout it was allocated with.
        let lines = unsafe {
            let start = std::alloc::alloc_zeroed(layout).cast::<Line>();
            if start.is_null() {
                return None;
            }
            Vec::from_raw_parts(start, count, count)
        };
        Some(Self { lines, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `lines` owns at least `len` initialised bytes and u8 has no alignment.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
