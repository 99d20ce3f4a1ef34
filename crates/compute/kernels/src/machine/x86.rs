//! Loops of independent chains, as many as hide the latency of their instruction.
//!
//! They are assembly, so that what is measured is the instruction and not what a compiler makes of it.

use std::arch::asm;
use std::arch::x86_64::*;

use super::Loop;
use crate::Isa;
use crate::tiles::TileShapes;

/// Chains of a loop: a latency of four to five cycles times two a cycle.
const CHAINS: u64 = 12;

/// One loop for each set of 8-bit dot products that this CPU has.
pub(super) fn int8_loops() -> Vec<Loop> {
    let has = Isa::available();
    let mut loops = Vec::new();
    let mut add = |isa, operations, run| loops.push(Loop { isa, operations, run });
    if has.contains(&Isa::Avx2) {
        // SAFETY: listed only where AVX2 is there.
        add("avx2", 2 * 32 * 8, |turns| unsafe { maddubs(turns) });
    }
    if has.contains(&Isa::AvxVnni) {
        // SAFETY: listed only where AVX-VNNI is there.
        add("avx-vnni", 2 * 32 * CHAINS, |turns| unsafe { avx_vnni(turns) });
    }
    if has.iter().any(|isa| *isa >= Isa::Avx512) {
        // SAFETY: listed only where AVX-512-VNNI is there.
        add("avx512-vnni", 2 * 64 * CHAINS, |turns| unsafe { avx512_vnni(turns) });
    }
    if has.contains(&Isa::Amx) {
        // SAFETY: listed only where AMX is there.
        add("amx", 2 * 16 * 16 * 64 * 4, |turns| unsafe { amx(turns) });
    }
    loops
}

/// One loop for each width of f32 multiply-adds that this CPU has.
pub(super) fn f32_loops() -> Vec<Loop> {
    let has = Isa::available();
    let mut loops = Vec::new();
    if has.len() > 1 {
        // SAFETY: listed only where AVX2 and FMA are there.
        let run = |turns| unsafe { fma256(turns) };
        loops.push(Loop { isa: "avx2", operations: 2 * 8 * CHAINS, run });
    }
    if has.iter().any(|isa| *isa >= Isa::Avx512) {
        // SAFETY: listed only where AVX-512 is there.
        let run = |turns| unsafe { fma512(turns) };
        loops.push(Loop { isa: "avx512-vnni", operations: 2 * 16 * CHAINS, run });
    }
    loops
}

/// `$op accumulator, $a, $b` once for each of twelve accumulators, `$turns` times.
macro_rules! chains {
    ($turns:expr, $op:literal, $class:literal, $a:expr, $b:expr, $zero:expr, [$($n:literal $register:tt),*], $left:tt, $right:tt) => {
        asm!(
            "2:",
            $(concat!($op, " ", $class, $n, ", ", $class, "12, ", $class, "13"),)*
            "dec {turns}",
            "jnz 2b",
            turns = inout(reg) $turns.max(1) => _,
            $(inout($register) $zero => _,)*
            in($left) $a,
            in($right) $b,
            options(nomem, nostack)
        )
    };
    (ymm, $turns:expr, $op:literal, $a:expr, $b:expr, $zero:expr) => {
        chains!($turns, $op, "ymm", $a, $b, $zero, [0 "ymm0", 1 "ymm1", 2 "ymm2", 3 "ymm3", 4 "ymm4", 5 "ymm5",
            6 "ymm6", 7 "ymm7", 8 "ymm8", 9 "ymm9", 10 "ymm10", 11 "ymm11"], "ymm12", "ymm13")
    };
    (zmm, $turns:expr, $op:literal, $a:expr, $b:expr, $zero:expr) => {
        chains!($turns, $op, "zmm", $a, $b, $zero, [0 "zmm0", 1 "zmm1", 2 "zmm2", 3 "zmm3", 4 "zmm4", 5 "zmm5",
            6 "zmm6", 7 "zmm7", 8 "zmm8", 9 "zmm9", 10 "zmm10", 11 "zmm11"], "zmm12", "zmm13")
    };
}

/// What nibbles allow: eight pair sums fit 16 bits before they are widened. Eight products of 32 bytes a turn.
#[target_feature(enable = "avx2")]
unsafe fn maddubs(turns: u64) {
    let (a, b, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi8(-7), _mm256_set1_epi16(1));
    let zero = _mm256_setzero_si256();
    // SAFETY: registers only, of AVX2.
    unsafe {
        asm!(
            "2:",
            "vpmaddubsw ymm12, ymm10, ymm11", "vpaddw ymm0, ymm0, ymm12",
            "vpmaddubsw ymm13, ymm10, ymm11", "vpaddw ymm1, ymm1, ymm13",
            "vpmaddubsw ymm12, ymm10, ymm11", "vpaddw ymm2, ymm2, ymm12",
            "vpmaddubsw ymm13, ymm10, ymm11", "vpaddw ymm3, ymm3, ymm13",
            "vpmaddubsw ymm12, ymm10, ymm11", "vpaddw ymm4, ymm4, ymm12",
            "vpmaddubsw ymm13, ymm10, ymm11", "vpaddw ymm5, ymm5, ymm13",
            "vpmaddubsw ymm12, ymm10, ymm11", "vpaddw ymm6, ymm6, ymm12",
            "vpmaddubsw ymm13, ymm10, ymm11", "vpaddw ymm7, ymm7, ymm13",
            "vpmaddwd ymm12, ymm0, ymm14", "vpaddd ymm8, ymm8, ymm12",
            "dec {turns}",
            "jnz 2b",
            turns = inout(reg) turns.max(1) => _,
            inout("ymm0") zero => _, inout("ymm1") zero => _, inout("ymm2") zero => _, inout("ymm3") zero => _,
            inout("ymm4") zero => _, inout("ymm5") zero => _, inout("ymm6") zero => _, inout("ymm7") zero => _,
            inout("ymm8") zero => _, out("ymm12") _, out("ymm13") _,
            in("ymm10") a, in("ymm11") b, in("ymm14") ones,
            options(nomem, nostack)
        );
    }
}

#[target_feature(enable = "avx2,avxvnni")]
unsafe fn avx_vnni(turns: u64) {
    let (a, b, zero) = (_mm256_set1_epi8(100), _mm256_set1_epi8(-7), _mm256_setzero_si256());
    // SAFETY: registers only, of AVX-VNNI.
    unsafe { chains!(ymm, turns, "{{vex}} vpdpbusd", a, b, zero) };
}

#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn avx512_vnni(turns: u64) {
    let (a, b, zero) = (_mm512_set1_epi8(100), _mm512_set1_epi8(-7), _mm512_setzero_si512());
    // SAFETY: registers only, of AVX-512-VNNI.
    unsafe { chains!(zmm, turns, "vpdpbusd", a, b, zero) };
}

#[target_feature(enable = "avx2,fma")]
unsafe fn fma256(turns: u64) {
    let (a, b, zero) = (_mm256_set1_ps(0.5), _mm256_set1_ps(0.25), _mm256_setzero_ps());
    // SAFETY: registers only, of FMA.
    unsafe { chains!(ymm, turns, "vfmadd231ps", a, b, zero) };
}

#[target_feature(enable = "avx512f")]
unsafe fn fma512(turns: u64) {
    let (a, b, zero) = (_mm512_set1_ps(0.5), _mm512_set1_ps(0.25), _mm512_setzero_ps());
    // SAFETY: registers only, of AVX-512.
    unsafe { chains!(zmm, turns, "vfmadd231ps", a, b, zero) };
}

/// Eight tiles of 16 rows of 64 bytes.
static SHAPES: TileShapes = TileShapes::new([(16, 64); 8]);

/// Four products of 16 × 64 by 64 × 16 bytes a turn.
unsafe fn amx(turns: u64) {
    let bytes = [3u8; 1024];
    // SAFETY: the caller found AMX; what the tiles read outlives the block, and no tile is in use outside it.
    unsafe {
        SHAPES.apply();
        asm!(
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "tileloadd tmm4, [{bytes} + {stride}]", "tileloadd tmm5, [{bytes} + {stride}]",
            "tileloadd tmm6, [{bytes} + {stride}]", "tileloadd tmm7, [{bytes} + {stride}]",
            "2:",
            "tdpbusd tmm0, tmm4, tmm6", "tdpbusd tmm1, tmm4, tmm7",
            "tdpbusd tmm2, tmm5, tmm6", "tdpbusd tmm3, tmm5, tmm7",
            "dec {turns}",
            "jnz 2b",
            bytes = in(reg) bytes.as_ptr(),
            stride = in(reg) 64usize,
            turns = inout(reg) turns.max(1) => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(readonly, nostack)
        );
    }
}
