//! The reference: what every other instruction set must equal bit by bit.

use half::{bf16, f16};

use super::Panel;
use crate::blocks::BlockFormat;
use crate::panels::read_block;
use crate::{Activations, PANEL_ROWS};

pub(super) fn panel_product(x: &Activations, panel: &Panel<'_>) {
    for row in 0..x.rows {
        let mut sums = [0f32; PANEL_ROWS];
        if panel.weights.format().is_float() {
            float_row(x, row, panel, &mut sums);
        } else {
            quantized_row(x, row, panel, &mut sums);
        }
        panel.store(row, 0, &sums);
    }
}

fn float_row(x: &Activations, row: usize, panel: &Panel<'_>, sums: &mut [f32; PANEL_ROWS]) {
    let format = panel.weights.format();
    let size = format.block_bytes();
    let lanes = panel.weights.panel(panel.index).chunks_exact(size * PANEL_ROWS);
    for (values, &input) in lanes.zip(&x.values[row * x.cols..][..x.cols]) {
        for (sum, raw) in sums.iter_mut().zip(values.chunks_exact(size)) {
            let weight = match (format, raw) {
                (BlockFormat::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
                (BlockFormat::BF16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
                (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
                _ => f32::NAN,
            };
            *sum = weight.mul_add(input, *sum);
        }
    }
}

fn quantized_row(x: &Activations, row: usize, panel: &Panel<'_>, sums: &mut [f32; PANEL_ROWS]) {
    let format = panel.weights.format();
    let (quants, scales, x_sums, scaled_sums) = x.quantized_row(row);
    let blocks = panel.weights.panel(panel.index).chunks_exact(panel.weights.block_stride());
    for (index, block) in blocks.enumerate() {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let weights = read_block(format, block, lane);
            let inputs = &quants[index * crate::BLOCK..][..crate::BLOCK];
            let dot: i32 =
                weights.quants.iter().zip(inputs).map(|(&w, &q)| i32::from(w) * i32::from(q)).sum();
            let dot = dot - format.offset() * x_sums[index];
            *sum = (dot as f32).mul_add(weights.scale.to_f32() * scales[index], *sum);
            if format.has_min() {
                *sum = weights.min.to_f32().mul_add(scaled_sums[index], *sum);
            }
        }
    }
}
