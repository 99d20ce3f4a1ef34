//! AVX2 and AVX-512. The safe methods lean on this: a value of these types exists only where
//! [`super::on_simd`] found the CPU to have the instructions.

mod avx2;
mod avx512;

pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;
