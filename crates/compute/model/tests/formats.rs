//! Models in every block format, matrices and vectors.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision};
use motet_testkit::{GgufBuilder, TinyModel, WeightType};

fn logits(builder: &GgufBuilder, precision: Precision) -> Vec<f32> {
    let gguf = Gguf::from_bytes("tiny.gguf", builder.build()).unwrap();
    let options =
        CpuOptions { threads: 1, kv_bytes: 1 << 20, precision, kv: KvFormat::F32, isa: Isa::detect() };
    CpuExecutor::load(&gguf, options).unwrap().score(&[5, 7, 9, 11], &[3]).unwrap()
}

fn tiny(weights: WeightType) -> TinyModel {
    TinyModel { weights, layers: 1, ..TinyModel::default() }
}

#[test]
fn every_format_computes() {
    for weights in WeightType::ALL {
        let builder = tiny(weights).builder();
        let (exact, fast) = (logits(&builder, Precision::Exact), logits(&builder, Precision::Fast));
        let size = exact.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
        let distance = exact.iter().zip(&fast).fold(0.0, |most: f32, (a, b)| most.max((a - b).abs()));
        assert!(size > 0.1 && size.is_finite(), "{weights:?}: logits up to {size}");
        assert!(distance <= 0.1 * size, "{weights:?}: {distance} of {size} between fast and exact");
    }
}

#[test]
fn vectors_come_in_every_format() {
    // A model whose rows are whole blocks of every format.
    let wide = || tiny(WeightType::Q4_K).builder();
    let name = "output_norm.weight";
    let ones = vec![1.0; 256];
    let expected = logits(
        &wide().without_tensor(name).tensor(name, &[256], 0, WeightType::F32.encode(&ones)),
        Precision::Exact,
    );
    for ty in WeightType::ALL {
        let norm = wide().without_tensor(name).tensor(name, &[256], ty.id(), ty.encode(&ones));
        for (a, b) in logits(&norm, Precision::Exact).iter().zip(&expected) {
            assert!((a - b).abs() <= 0.2 * b.abs() + 1e-3, "{ty:?}: {a} where F32 gives {b}");
        }
    }
}
