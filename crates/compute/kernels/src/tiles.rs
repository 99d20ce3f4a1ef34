//! AMX tiles: the system's leave to use them, and their shapes, which are a state of each thread.

use std::arch::asm;
use std::cell::Cell;

/// Whether the CPU has 8-bit tiles and the system lets this process use them. It saves their state only for
/// processes that ask (Documentation/arch/x86/xstate.rst of the kernel).
///
/// Called where AVX-512 was found, so that the CPU has the leaf that is looked at.
#[cfg(target_os = "linux")]
pub(crate) fn request() -> bool {
    const LEAF_FEATURES: u32 = 7;
    const TILE_AND_INT8: u32 = 0b11 << 24;
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and changes nothing but this process's leave.
    std::arch::x86_64::__cpuid_count(LEAF_FEATURES, 0).edx & TILE_AND_INT8 == TILE_AND_INT8
        && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
}

/// Not known how to ask other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) fn request() -> bool {
    false
}

/// The shapes of the eight tiles: the operand of `ldtilecfg` (Intel SDM, volume 1, 18.2).
#[repr(C, align(64))]
pub(crate) struct TileShapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

impl TileShapes {
    /// Rows, and bytes of a row, of each tile.
    pub(crate) const fn new(shapes: [(u8, u16); 8]) -> Self {
        let mut all =
            Self { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < shapes.len() {
            (all.rows[tile], all.bytes_per_row[tile]) = shapes[tile];
            tile += 1;
        }
        all
    }

    /// Gives this thread's tiles these shapes, if they have others: it takes as long as four products.
    ///
    /// # Safety
    /// [`request`] succeeded.
    #[inline(always)]
    pub(crate) unsafe fn apply(&'static self) {
        thread_local! {
            static CURRENT: Cell<Option<&'static TileShapes>> = const { Cell::new(None) };
        }
        if CURRENT.replace(Some(self)).is_none_or(|current| !std::ptr::eq(current, self)) {
            // SAFETY: the operand is 64 bytes of valid shapes; the rest is the caller's promise.
            unsafe { asm!("ldtilecfg [{}]", in(reg) self, options(nostack, readonly)) };
        }
    }
}
