/// An instruction set the kernels are written for. The bits are the same on all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust; the reference.
    Scalar,
    /// AVX2 with FMA and F16C (x86-64-v3). Only [`Isa::detect`] makes one, on a CPU that has them.
    #[non_exhaustive]
    Avx2,
}

impl Isa {
    /// The fastest this machine runs.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            return Self::Avx2;
        }
        Self::Scalar
    }

    /// All this machine runs, the scalar reference first.
    pub fn available() -> Vec<Self> {
        match Self::detect() {
            Self::Scalar => vec![Self::Scalar],
            best => vec![Self::Scalar, best],
        }
    }
}

/// Code that is compiled once as it is and once for each wider instruction set.
///
/// `run` is marked `#[inline(always)]`, and so is what it calls: only what is inlined into the wide
/// copy is vectorised with its features. IEEE operations written out one by one give equal bits in
/// all copies.
pub(crate) trait Kernel {
    fn run(self);
}

/// Runs the copy of `kernel` for `isa`.
#[inline(always)]
pub(crate) fn on_isa(isa: Isa, kernel: impl Kernel) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2(kernel: impl Kernel) {
        kernel.run();
    }
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::Avx2` exists only after the CPU reported these features.
        Isa::Avx2 => unsafe { avx2(kernel) },
        _ => kernel.run(),
    }
}
