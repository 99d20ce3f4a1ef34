/// An instruction set the kernels are written for. The bits are the same on all of them.
///
/// Each has what those before it of the same architecture have. Only [`Isa::detect`] and [`Isa::available`] make one other than
/// [`Isa::Scalar`], on a CPU that has it: code that holds one may use its instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust; the reference.
    Scalar,
    /// AVX2 with FMA and F16C (x86-64-v3).
    #[non_exhaustive]
    Avx2,
    /// The same with the 8-bit dot products of AVX-VNNI.
    #[non_exhaustive]
    AvxVnni,
    /// AVX-512 F, BW, DQ and VL (x86-64-v4) with the 8-bit dot products of AVX-512-VNNI.
    #[non_exhaustive]
    Avx512,
    /// The same with the 8-bit matrix tiles of AMX.
    #[non_exhaustive]
    Amx,
    /// NEON, which every aarch64 CPU has: vectors of 16 bytes.
    #[non_exhaustive]
    Neon,
    /// The same with the 8-bit dot products of `dotprod` (Armv8.2-A and later).
    #[non_exhaustive]
    NeonDot,
}

impl Isa {
    /// The fastest this machine runs.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self::Scalar)
    }

    /// All this machine runs, slowest first; the scalar reference is always the first.
    pub fn available() -> Vec<Self> {
        let x86 = [Self::Avx2, Self::AvxVnni, Self::Avx512, Self::Amx];
        let all = [Self::Scalar].into_iter().chain(x86).chain([Self::Neon, Self::NeonDot]);
        all.filter(|isa| isa.is_available()).collect()
    }

    /// The name in messages and options: `scalar`, `avx2`, `avx-vnni`, `avx512-vnni`, `amx`, `neon`,
    /// `neon-dotprod`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512 => "avx512-vnni",
            Self::Amx => "amx",
            Self::Neon => "neon",
            Self::NeonDot => "neon-dotprod",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        let avx2 = || {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
        };
        let avx512 = || {
            avx2()
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
        };
        match self {
            Self::Scalar => true,
            Self::Avx2 => avx2(),
            Self::AvxVnni => avx2() && is_x86_feature_detected!("avxvnni"),
            Self::Avx512 => avx512(),
            Self::Amx => avx512() && crate::tiles::request(),
            Self::Neon | Self::NeonDot => false,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn is_available(self) -> bool {
        use std::arch::is_aarch64_feature_detected;
        match self {
            Self::Scalar => true,
            Self::Neon => is_aarch64_feature_detected!("neon"),
            Self::NeonDot => is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod"),
            Self::Avx2 | Self::AvxVnni | Self::Avx512 | Self::Amx => false,
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn is_available(self) -> bool {
        self == Self::Scalar
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
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn avx512(kernel: impl Kernel) {
        kernel.run();
    }
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: these exist only after the CPU reported the features.
        Isa::Avx2 | Isa::AvxVnni => unsafe { avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 | Isa::Amx => unsafe { avx512(kernel) },
        // NEON belongs to what aarch64 is compiled for: the plain copy has it.
        _ => kernel.run(),
    }
}
