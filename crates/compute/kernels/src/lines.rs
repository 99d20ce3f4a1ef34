use std::alloc::Layout;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Zeroed bytes that start on a cache line, so that a panel's vectors never straddle two.
pub(crate) struct Lines {
    /// Room for `len` bytes from the first cache line in it on.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Lines {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self::of(vec![0; len + LINE], len)
    }

    /// The same, `None` when the allocator refuses.
    ///
    /// Zero pages are taken from the system when first written. The allocator gives them like that only
    /// where no alignment is asked for: with one it zeroes, and so occupies, all of them.
    pub(crate) fn try_zeroed(len: usize) -> Option<Self> {
        let layout = Layout::array::<u8>(len.checked_add(LINE)?).ok()?;
        // SAFETY: the layout is not empty, zero bytes are valid, and the vector frees with the layout it was
        // allocated with.
        let bytes = unsafe {
            let start = std::alloc::alloc_zeroed(layout);
            (!start.is_null()).then(|| Vec::from_raw_parts(start, layout.size(), layout.size()))
        }?;
        Some(Self::of(bytes, len))
    }

    fn of(bytes: Vec<u8>, len: usize) -> Self {
        // The vector is never grown, so its buffer stays where it is.
        let start = bytes.as_ptr().align_offset(LINE).min(LINE);
        Self { bytes, start, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_a_line_and_is_zero() {
        for len in [0, 1, 63, 64, 1000] {
            for mut lines in [Lines::zeroed(len), Lines::try_zeroed(len).unwrap()] {
                assert_eq!(lines.as_slice().len(), len);
                assert!(lines.as_slice().iter().all(|byte| *byte == 0));
                assert!(len == 0 || lines.as_slice().as_ptr().addr().is_multiple_of(LINE));
                lines.as_mut_slice().fill(1);
            }
        }
        assert!(Lines::try_zeroed(usize::MAX).is_none());
    }

    /// A gibibyte that is asked for and not touched is not resident.
    #[test]
    #[cfg(target_os = "linux")]
    fn untouched_pages_take_no_memory() {
        let resident = || -> usize {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            status.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let lines = Lines::try_zeroed(1 << 30).unwrap();
        let grown = resident().saturating_sub(before);
        assert!(grown < 100 << 20, "{grown} bytes");
        drop(lines);
    }
}
