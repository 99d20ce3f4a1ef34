//! Speed of one thread's matmul by instruction set, format and number of rows.
//!
//! `cargo bench -p motet-kernels --bench matmul`. Best of several runs; the ratio is to AVX2 in the same run.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use motet_kernels::{
    Activations, BlockFormat, Isa, PackedMatrix, Precision, Product, Source, Sum, ThreadPool, matmul,
};

/// Output rows and columns of SmolLM2-135M's and larger models' weights.
const SHAPES: [(usize, usize); 4] = [(960, 576), (576, 1536), (3072, 576), (49_152, 576)];

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let formats = [BlockFormat::Q4_1, BlockFormat::Q4_0, BlockFormat::Q8_0, BlockFormat::F16];
    println!("{:<8}{:<14}{:>6}  Gop/s by instruction set (ratio to the first)", "format", "shape", "rows");
    for format in formats {
        if only.as_ref().is_some_and(|only| only != format.name()) {
            continue;
        }
        for shape in SHAPES {
            for rows in [1, 8, 32, 128] {
                measure(format, shape, rows);
            }
        }
    }
}

fn measure(format: BlockFormat, (outputs, cols): (usize, usize), rows: usize) {
    let pool = ThreadPool::new(1);
    // Any bytes are blocks; scales that are NaN cost what others do.
    let raw: Vec<u8> =
        (0..format.bytes(outputs * cols)).map(|i| ((i * 2_654_435_761) >> 13) as u8 & 0x3b).collect();
    let weights =
        PackedMatrix::pack(&pool, Source { format, raw: &raw, rows: outputs, cols }, Precision::Fast);
    let mut x = Activations::default();
    for (i, v) in x.fill(rows, cols).iter_mut().enumerate() {
        *v = (i * 7919 % 1000) as f32 / 500.0 - 1.0;
    }
    x.quantize(&pool, Isa::detect());
    let mut out = vec![0f32; rows * outputs];
    let operations = 2.0 * (rows * outputs * cols) as f64;
    let repeats = (5e7 / operations).clamp(1.0, 1e3) as usize;
    print!("{:<8}{:<14}{rows:>6}  ", format.name(), format!("{outputs}×{cols}"));
    let mut first = None;
    for isa in Isa::available()
        .into_iter()
        .filter(|isa| *isa != Isa::Scalar && std::env::var("ISA").map_or(true, |name| name == isa.name()))
    {
        let mut run = || {
            let began = Instant::now();
            for _ in 0..repeats {
                matmul(
                    &pool,
                    isa,
                    &x,
                    &mut [Product { weights: &weights, out: &mut out, sum: Sum::Replace }],
                );
            }
            began.elapsed().as_secs_f64() / repeats as f64
        };
        let best = (0..25).map(|_| run()).fold(f64::INFINITY, f64::min);
        let speed = operations / best / 1e9;
        let ratio = speed / *first.get_or_insert(speed);
        print!("{:>12} {speed:>6.0} ({ratio:.1}×)", isa.name());
    }
    println!();
}
