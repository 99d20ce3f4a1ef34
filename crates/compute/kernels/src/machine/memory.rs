//! How fast memory is read.

use super::best;
use crate::lines::{Lines, Pages};
use crate::simd::{F32x16, LANES, SimdKernel, on_simd};
use crate::{Isa, ThreadPool, cpus};

/// Bytes that one task reads: long enough for the prefetchers, short enough to share out evenly.
const TASK: usize = 256 << 10;
/// Tasks of a thread in one run, which then takes less than a millisecond: on a busy machine some runs are left in
/// peace.
const TASKS_PER_THREAD: usize = 16;
/// Bytes of the last-level cache where the system does not say.
const ASSUMED_CACHE: usize = 32 << 20;
/// Read at least, where there is room: beyond any cache.
const LEAST: usize = 1 << 30;
/// Read at most: writing it first takes time.
const MOST: usize = 2 << 30;

/// 10⁹ bytes a second at which all threads together read `bytes` of memory, one part after the other and over
/// again, where they were fastest; 0 where that memory can't be had.
pub fn read_bandwidth(pool: &ThreadPool, bytes: usize) -> f64 {
    let tasks = (bytes / TASK).max(1);
    let Some(mut lines) = Lines::with_pages(tasks * TASK, Pages::Weights) else { return 0.0 };
    // Pages that were never written to are all the same page of zeros.
    pool.for_rows(lines.as_mut_slice(), TASK, &|index, task| task.fill(index as u8 | 1));
    let (bytes, isa) = (lines.as_slice(), Isa::detect());
    let together = (pool.threads() * TASKS_PER_THREAD).min(tasks);
    let mut first = 0;
    let seconds = best(|| {
        pool.run(together, &|task| {
            let task = (first + task) % tasks;
            on_simd(isa, Read { bytes: &bytes[task * TASK..][..TASK] });
        });
        first = (first + together) % tasks;
    });
    (together * TASK) as f64 / seconds / 1e9
}

/// Four times the last-level cache, from 1 to 2 GiB, but no more than a quarter of the free memory.
pub(super) fn bytes_beyond_caches() -> usize {
    let cache = cpus::last_cache_bytes(&cpus::read_file).unwrap_or(ASSUMED_CACHE);
    let wanted = cache.saturating_mul(4).clamp(LEAST, MOST);
    let free = cpus::read_file("/proc/meminfo").and_then(|text| free_bytes(&text));
    wanted.min(free.map_or(LEAST, |free| free / 4)).max(TASK)
}

fn free_bytes(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

struct Read<'a> {
    bytes: &'a [u8],
}

impl SimdKernel for Read<'_> {
    #[inline(always)]
    fn run<F: F32x16>(self) {
        // As many sums as hide the latency of an addition. Explicit vectors: from a loop over words the compiler
        // makes gathers, which read at a fifth of the speed.
        let mut sums = [F::splat(0.0); 8];
        let (rows, _) = self.bytes.as_chunks::<{ 8 * LANES * size_of::<f32>() }>();
        for row in rows {
            for (lane, sum) in sums.iter_mut().enumerate() {
                // SAFETY: a row is eight vectors of bytes, and any bytes are floats.
                *sum = sum.add(unsafe { F::load(row.as_ptr().cast::<f32>().add(lane * LANES)) });
            }
        }
        std::hint::black_box(sums.map(F::reduce_max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        assert!(read_bandwidth(&ThreadPool::new(2), 3 << 20) > 0.0);
        assert_eq!(read_bandwidth(&ThreadPool::new(1), usize::MAX / 4), 0.0);
    }

    #[test]
    fn free_memory_is_understood() {
        assert_eq!(free_bytes("MemTotal: 5 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(free_bytes(""), None);
        assert!(bytes_beyond_caches() >= TASK);
    }
}
