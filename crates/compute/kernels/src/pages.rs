//! Memory taken from the system in whole pages: huge ones, on the NUMA nodes that are meant.

use crate::cpus;
use crate::lines::Pages;

/// Whether the system gives transparent huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// To every program.
    Always,
    /// To programs that ask, as this one does.
    Madvise,
    /// To nobody: large memory then costs more TLB misses.
    Never,
    /// It does not say; outside Linux always so.
    Unknown,
}

impl HugePages {
    /// The word in the system's own file, or `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Madvise => "madvise",
            Self::Never => "never",
            Self::Unknown => "unknown",
        }
    }

    /// Reads a line such as `always [madvise] never`.
    fn parse(text: &str) -> Self {
        let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        match chosen {
            Some("always") => Self::Always,
            Some("madvise") => Self::Madvise,
            Some("never") => Self::Never,
            _ => Self::Unknown,
        }
    }
}

/// Whether large memory of this process is in huge pages, as far as the system gives them.
pub fn huge_pages() -> HugePages {
    let text = cpus::read_file("/sys/kernel/mm/transparent_hugepage/enabled");
    text.map_or(HugePages::Unknown, |text| HugePages::parse(&text))
}

/// NUMA nodes that have memory and that this process may use, ascending; one where the system does not say.
pub fn memory_nodes() -> Vec<usize> {
    let nodes = nodes(&cpus::read_file);
    if nodes.is_empty() { vec![0] } else { nodes }
}

fn nodes(read: cpus::Read<'_>) -> Vec<usize> {
    let list = |text: String| cpus::parse_list(&text);
    let with_memory = read("/sys/devices/system/node/has_memory").map(list).unwrap_or_default();
    let allowed = read("/proc/self/status").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
        Some(cpus::parse_list(line))
    });
    let is_allowed = |node: &usize| allowed.as_ref().is_none_or(|allowed| allowed.contains(node));
    with_memory.into_iter().filter(is_allowed).collect()
}

/// Zeroed memory of its own, returned to the system when dropped.
pub(crate) struct Mapping {
    #[cfg(target_os = "linux")]
    address: *mut u8,
    #[cfg(target_os = "linux")]
    len: usize,
    #[cfg(not(target_os = "linux"))]
    none: std::convert::Infallible,
}

// SAFETY: it owns its memory, and hands out a raw pointer only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[cfg(target_os = "linux")]
impl Mapping {
    /// Bytes of a huge page on the machines this is made for; others take what part of the range they can.
    const HUGE: usize = 2 << 20;

    /// `len` bytes that start on a huge page; `None` where the system refuses.
    pub(crate) fn new(len: usize, pages: Pages) -> Option<Self> {
        let len = len.max(1).checked_next_multiple_of(Self::HUGE)?;
        let wide = len.checked_add(Self::HUGE)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new private mapping at an address of the system's choice.
        let given = unsafe { libc::mmap(std::ptr::null_mut(), wide, access, kind, -1, 0) };
        if given == libc::MAP_FAILED {
            return None;
        }
        let given = given.cast::<u8>();
        let before = given.addr().next_multiple_of(Self::HUGE) - given.addr();
        // SAFETY: both ranges are inside the mapping made above and outside what is kept; all are whole pages.
        let address = unsafe {
            let address = given.add(before);
            if before > 0 {
                libc::munmap(given.cast(), before);
            }
            if before < Self::HUGE {
                libc::munmap(address.add(len).cast(), Self::HUGE - before);
            }
            address
        };
        let mapping = Self { address, len };
        // SAFETY: the range is this mapping; the advice may be refused, and changes no content.
        unsafe { libc::madvise(address.cast(), len, libc::MADV_HUGEPAGE) };
        if pages == Pages::Weights {
            mapping.interleave(&memory_nodes());
        }
        Some(mapping)
    }

    /// Spreads pages that are not there yet over `nodes`, so that all memory channels serve all threads.
    /// Without effect for one node, and where the system refuses.
    fn interleave(&self, nodes: &[usize]) {
        const MPOL_INTERLEAVE: libc::c_int = 3;
        const WORDS: usize = 16;
        let mut mask = [0 as libc::c_ulong; WORDS];
        let bits = libc::c_ulong::BITS as usize;
        let known = nodes.iter().filter(|node| **node < WORDS * bits);
        if known.clone().count() < 2 {
            return;
        }
        known.for_each(|node| mask[node / bits] |= 1 << (node % bits));
        // The kernel reads one bit less than it is told.
        let count = WORDS * bits + 1;
        // SAFETY: the range is this mapping and the mask holds the bits that are counted.
        unsafe {
            libc::syscall(libc::SYS_mbind, self.address, self.len, MPOL_INTERLEAVE, mask.as_ptr(), count, 0)
        };
    }

    /// The first byte, on a huge page.
    pub(crate) fn start(&self) -> *mut u8 {
        self.address
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, to which nobody else refers any more.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}

#[cfg(not(target_os = "linux"))]
impl Mapping {
    pub(crate) fn new(_len: usize, _pages: Pages) -> Option<Self> {
        None
    }

    pub(crate) fn start(&self) -> *mut u8 {
        match self.none {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_counts() {
        let check = |text: &str, expected| assert_eq!(HugePages::parse(text), expected, "{text}");
        check("always [madvise] never\n", HugePages::Madvise);
        check("[always] madvise never", HugePages::Always);
        check("always madvise [never]", HugePages::Never);
        check("", HugePages::Unknown);
    }

    #[test]
    fn nodes_have_memory_and_are_allowed() {
        let check = |memory: &str, status: Option<&str>, expected: &[usize]| {
            let read = |path: &str| match path {
                "/proc/self/status" => status.map(str::to_owned),
                _ => Some(memory.to_owned()),
            };
            assert_eq!(nodes(&read), expected, "{memory} {status:?}");
        };
        check("0-1,3\n", None, &[0, 1, 3]);
        check("0-1,3\n", Some("Name:\tx\nMems_allowed:\t2\nMems_allowed_list:\t1-2\n"), &[1]);
        check("", Some("Mems_allowed_list:\t0\n"), &[]);
        assert!(!memory_nodes().is_empty());
    }

    /// With one node, and with nodes that are not there, the memory is as usable.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_refused_placement_changes_nothing() {
        for nodes in [&[0][..], &[0, 900], &[5000, 6000]] {
            let mapping = Mapping::new(1, Pages::FirstTouch).unwrap();
            mapping.interleave(nodes);
            assert!(mapping.start().addr().is_multiple_of(Mapping::HUGE));
            // SAFETY: the mapping has at least one byte and no other reference.
            unsafe {
                assert_eq!(*mapping.start(), 0);
                *mapping.start() = 1;
            }
        }
    }
}
