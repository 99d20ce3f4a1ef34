//! What this machine can do at most, measured: the ceilings that kernels are compared with.
//!
//! Each figure is the best of many short runs on all threads of a pool, since other processes can only lower
//! it. An operation is a multiplication or an addition, so a multiply-add counts two.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod memory;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::time::{Duration, Instant};

use crate::{ThreadPool, cpus};

pub use memory::read_bandwidth;

/// Bytes that a small model's weights take: with a large last-level cache they are read from there.
pub const SMALL_MODEL_BYTES: usize = 96 << 20;

/// Runs whose best counts, at least.
const RUNS: usize = 6;
/// Time for all runs of a figure, where they are short.
const ALL_RUNS: Duration = Duration::from_millis(150);
/// What one run of a compute loop takes, about: on a busy machine some of them are then left in peace.
const RUN_TIME: Duration = Duration::from_micros(500);

/// The ceilings of this machine.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Threads that were measured.
    pub threads: usize,
    /// Dot products of 8-bit integers, in 10⁹ operations a second, by instruction set, narrowest first.
    pub int8: Vec<Peak>,
    /// f32 multiply-adds, in 10⁹ operations a second, by instruction set, narrowest first.
    pub f32: Vec<Peak>,
    /// 10⁹ bytes a second read from [`Limits::memory_bytes`].
    pub memory: f64,
    /// Bytes that were read for it: several times the last-level cache where there is room.
    pub memory_bytes: usize,
    /// 10⁹ bytes a second read from [`SMALL_MODEL_BYTES`], over and over.
    pub small_model: f64,
}

/// The most that the instructions of one set reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// The name of the [`Isa`](crate::Isa) that has them.
    pub isa: &'static str,
    /// 10⁹ operations a second.
    pub gops: f64,
}

/// Measures all of it; takes about two seconds.
pub fn measure(pool: &ThreadPool) -> Limits {
    let memory_bytes = memory::bytes_beyond_caches();
    Limits {
        threads: pool.threads(),
        int8: int8_peaks(pool),
        f32: f32_peaks(pool),
        memory: read_bandwidth(pool, memory_bytes),
        memory_bytes,
        small_model: read_bandwidth(pool, SMALL_MODEL_BYTES),
    }
}

/// Bytes of the last level of cache; `None` where the system does not say.
pub fn last_cache_bytes() -> Option<usize> {
    cpus::last_cache_bytes(&cpus::read_file)
}

impl Limits {
    /// The 8-bit ceiling for kernels of the instruction set `isa`, by name: that of the widest among those up
    /// to it. 0 where none was measured.
    pub fn int8_of(&self, isa: &str) -> f64 {
        peak_of(&self.int8, isa)
    }

    /// The f32 ceiling, likewise.
    pub fn f32_of(&self, isa: &str) -> f64 {
        peak_of(&self.f32, isa)
    }
}

/// From narrow to wide, as [`Isa::name`](crate::Isa::name) gives them; a machine has those of one architecture.
const ORDER: [&str; 7] = ["scalar", "avx2", "avx-vnni", "avx512-vnni", "amx", "neon", "neon-dotprod"];

fn peak_of(peaks: &[Peak], isa: &str) -> f64 {
    let rank = |name: &str| ORDER.iter().position(|known| *known == name);
    let within = peaks.iter().filter(|peak| rank(peak.isa) <= rank(isa));
    within.map(|peak| peak.gops).fold(0.0, f64::max)
}

/// A loop without memory accesses.
#[derive(Clone, Copy)]
struct Loop {
    isa: &'static str,
    /// Operations of one turn.
    operations: u64,
    /// Runs so many turns.
    run: fn(u64),
}

/// 8-bit peaks of every instruction set that this machine has; for plain code, what the compiler makes of it.
pub fn int8_peaks(pool: &ThreadPool) -> Vec<Peak> {
    #[cfg(target_arch = "x86_64")]
    let wider = x86::int8_loops();
    #[cfg(target_arch = "aarch64")]
    let wider = aarch64::int8_loops();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let wider: Vec<Loop> = Vec::new();
    std::iter::once(INT8_PLAIN).chain(wider).map(|each| peak(pool, each)).collect()
}

/// f32 peaks, likewise.
pub fn f32_peaks(pool: &ThreadPool) -> Vec<Peak> {
    #[cfg(target_arch = "x86_64")]
    let wider = x86::f32_loops();
    #[cfg(target_arch = "aarch64")]
    let wider = aarch64::f32_loops();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let wider: Vec<Loop> = Vec::new();
    std::iter::once(F32_PLAIN).chain(wider).map(|each| peak(pool, each)).collect()
}

const INT8_PLAIN: Loop = Loop { isa: "scalar", operations: 2 * 64, run: int8_plain };
const F32_PLAIN: Loop = Loop { isa: "scalar", operations: 2 * 64, run: f32_plain };

fn int8_plain(turns: u64) {
    let (a, b) = (std::hint::black_box([3i8; 64]), std::hint::black_box([5i8; 64]));
    let mut sums = [0i32; 16];
    for _ in 0..turns {
        for (i, (a, b)) in a.iter().zip(&b).enumerate() {
            sums[i / 4] = sums[i / 4].wrapping_add(i32::from(*a) * i32::from(*b));
        }
        sums = std::hint::black_box(sums);
    }
}

fn f32_plain(turns: u64) {
    let (a, b) = (std::hint::black_box(0.5f32), std::hint::black_box(0.25f32));
    let mut sums = [0f32; 64];
    for _ in 0..turns {
        sums.iter_mut().for_each(|sum| *sum += a * b);
        sums = std::hint::black_box(sums);
    }
}

/// The sum of what each thread reaches at its best while all run.
fn peak(pool: &ThreadPool, l: Loop) -> Peak {
    let mut turns = 1 << 8;
    let mut fastest = seconds(|| (l.run)(turns));
    while fastest < RUN_TIME.as_secs_f64() / 2.0 {
        let factor = (RUN_TIME.as_secs_f64() / fastest.max(1e-9)).clamp(1.5, 1000.0);
        turns = (turns as f64 * factor) as u64;
        fastest = seconds(|| (l.run)(turns));
    }
    let mut shortest = vec![0f64; pool.threads()];
    pool.for_rows(&mut shortest, 1, &|_, shortest| shortest.fill(best(|| (l.run)(turns))));
    let gops = shortest.iter().map(|seconds| (l.operations * turns) as f64 / seconds / 1e9).sum();
    Peak { isa: l.isa, gops }
}

/// The shortest of several times.
fn best(mut body: impl FnMut()) -> f64 {
    let began = Instant::now();
    let (mut shortest, mut runs) = (f64::INFINITY, 0);
    while runs < RUNS || began.elapsed() < ALL_RUNS {
        shortest = shortest.min(seconds(&mut body));
        runs += 1;
    }
    shortest
}

fn seconds(body: impl FnOnce()) -> f64 {
    let began = Instant::now();
    body();
    began.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_a_ceiling() {
        let pool = ThreadPool::new(1);
        let (int8, f32) = (int8_peaks(&pool), f32_peaks(&pool));
        for peak in int8.iter().chain(&f32) {
            // No least speed: a machine may be busy, or emulated.
            assert!(peak.gops.is_finite() && peak.gops > 0.0, "{peak:?}");
        }
        let limits = Limits { threads: 1, int8, f32, memory: 1.0, memory_bytes: 1, small_model: 1.0 };
        for isa in crate::Isa::available() {
            assert!(limits.int8_of(isa.name()) > 0.0 && limits.f32_of(isa.name()) > 0.0, "{isa:?}");
        }
    }

    /// The limits are measured on threads that compute before and after.
    #[test]
    fn products_go_on_after_a_measurement() {
        use crate::{Activations, BlockFormat, Isa, PackedMatrix, Precision, Product, Source, Sum, matmul};
        let (pool, isa) = (ThreadPool::new(1), Isa::detect());
        let raw = vec![0x11; BlockFormat::Q8_0.bytes(16 * 64)];
        let source = Source { format: BlockFormat::Q8_0, raw: &raw, rows: 16, cols: 64 };
        let weights = PackedMatrix::pack(&pool, source, Precision::Fast);
        let mut x = Activations::default();
        x.fill(32, 64).fill(0.5);
        x.quantize(&pool, isa);
        let product = || {
            let mut out = vec![0f32; 32 * 16];
            matmul(&pool, isa, &x, &mut [Product { weights: &weights, out: &mut out, sum: Sum::Replace }]);
            out
        };
        let before = product();
        int8_peaks(&pool);
        assert_eq!(product(), before);
    }

    #[test]
    fn a_ceiling_is_that_of_the_set_or_of_one_below() {
        let x86 = [Peak { isa: "avx2", gops: 2.0 }, Peak { isa: "avx512-vnni", gops: 4.0 }];
        let arm = [Peak { isa: "scalar", gops: 1.0 }, Peak { isa: "neon", gops: 2.0 }];
        let check = |peaks: &[Peak], isa, expected: f64| assert_eq!(peak_of(peaks, isa), expected, "{isa}");
        check(&x86, "scalar", 0.0);
        check(&x86, "avx2", 2.0);
        check(&x86, "avx-vnni", 2.0);
        check(&x86, "avx512-vnni", 4.0);
        check(&x86, "amx", 4.0);
        check(&arm, "scalar", 1.0);
        check(&arm, "neon", 2.0);
        check(&arm, "neon-dotprod", 2.0);
    }

    #[test]
    fn every_set_has_its_place_in_the_order() {
        let available = crate::Isa::available();
        let known: Vec<_> =
            ORDER.into_iter().filter(|name| available.iter().any(|i| i.name() == *name)).collect();
        assert_eq!(known, available.iter().map(|isa| isa.name()).collect::<Vec<_>>());
    }
}
