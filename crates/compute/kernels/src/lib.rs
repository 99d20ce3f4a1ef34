//! Quantised matmul, attention and norms: each SIMD kernel beside its scalar twin.
