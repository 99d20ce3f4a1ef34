//! Loops of independent chains, as many as hide the latency of their instruction.
//!
//! They are assembly, so that what is measured is the instruction and not what a compiler makes of it.

use std::arch::asm;

use super::Loop;
use crate::Isa;

/// Chains of a loop: a latency of four cycles times six a cycle, which is what the widest cores have.
const CHAINS: u64 = 24;

/// One loop for each set of 8-bit dot products that this CPU has.
pub(super) fn int8_loops() -> Vec<Loop> {
    let has = Isa::available();
    let mut loops = Vec::new();
    if has.contains(&Isa::Neon) {
        loops.push(Loop { isa: "neon", operations: 2 * 8 * 16, run: multiply });
    }
    if has.contains(&Isa::NeonDot) {
        // SAFETY: listed only where dotprod is there.
        let run = |turns| unsafe { sdot(turns) };
        loops.push(Loop { isa: "neon-dotprod", operations: 2 * 16 * CHAINS, run });
    }
    loops
}

/// The loop of f32 multiply-adds.
pub(super) fn f32_loops() -> Vec<Loop> {
    let has_neon = Isa::available().contains(&Isa::Neon);
    let neon = Loop { isa: "neon", operations: 2 * 4 * CHAINS, run: fma };
    has_neon.then_some(neon).into_iter().collect()
}

/// `$op accumulator, v30, v31` once for each of 24 accumulators that start at zero, `$turns` times.
macro_rules! chains {
    ($turns:expr, $op:literal, $sum:literal, $each:literal) => {
        chains!(@ $turns, $op, $sum, $each,
            0 "v0", 1 "v1", 2 "v2", 3 "v3", 4 "v4", 5 "v5", 6 "v6", 7 "v7", 8 "v8", 9 "v9", 10 "v10", 11 "v11",
            12 "v12", 13 "v13", 14 "v14", 15 "v15", 16 "v16", 17 "v17", 18 "v18", 19 "v19", 20 "v20", 21 "v21",
            22 "v22", 23 "v23")
    };
    (@ $turns:expr, $op:literal, $sum:literal, $each:literal, $($n:literal $register:tt),*) => {
        asm!(
            "movi v30.16b, #3",
            "movi v31.16b, #5",
            $(concat!("movi v", $n, ".16b, #0"),)*
            "2:",
            $(concat!($op, " v", $n, $sum, ", v30", $each, ", v31", $each),)*
            "subs {turns}, {turns}, #1",
            "b.ne 2b",
            turns = inout(reg) $turns.max(1) => _,
            $(out($register) _,)*
            out("v30") _,
            out("v31") _,
            options(nomem, nostack)
        )
    };
}

#[target_feature(enable = "neon,dotprod")]
unsafe fn sdot(turns: u64) {
    // SAFETY: registers only, of dotprod.
    unsafe { chains!(turns, "sdot", ".4s", ".16b") };
}

fn fma(turns: u64) {
    // SAFETY: registers only; every aarch64 CPU this is built for has NEON.
    unsafe { chains!(turns, "fmla", ".4s", ".4s") };
}

/// What nibbles allow: eight products fit 16 bits before they are widened, here one sum of 16 in two of them in
/// turn. 16 products of eight bytes a turn.
fn multiply(turns: u64) {
    // SAFETY: as above.
    unsafe {
        asm!(
            "movi v30.16b, #15",
            "movi v31.16b, #7",
            "2:",
            "smlal v0.8h, v30.8b, v31.8b", "smlal2 v1.8h, v30.16b, v31.16b",
            "smlal v2.8h, v30.8b, v31.8b", "smlal2 v3.8h, v30.16b, v31.16b",
            "smlal v4.8h, v30.8b, v31.8b", "smlal2 v5.8h, v30.16b, v31.16b",
            "smlal v6.8h, v30.8b, v31.8b", "smlal2 v7.8h, v30.16b, v31.16b",
            "smlal v16.8h, v30.8b, v31.8b", "smlal2 v17.8h, v30.16b, v31.16b",
            "smlal v18.8h, v30.8b, v31.8b", "smlal2 v19.8h, v30.16b, v31.16b",
            "smlal v20.8h, v30.8b, v31.8b", "smlal2 v21.8h, v30.16b, v31.16b",
            "smlal v22.8h, v30.8b, v31.8b", "smlal2 v23.8h, v30.16b, v31.16b",
            "sadalp v24.4s, v0.8h", "sadalp v25.4s, v16.8h",
            "subs {turns}, {turns}, #1",
            "b.ne 2b",
            turns = inout(reg) turns.max(1) => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v16") _, out("v17") _, out("v18") _, out("v19") _, out("v20") _, out("v21") _, out("v22") _,
            out("v23") _, out("v24") _, out("v25") _, out("v30") _, out("v31") _,
            options(nomem, nostack)
        );
    }
}
