//! The reference: what every other instruction set must equal bit by bit.

use half::{bf16, f16};

use super::{FloatTile, QuantPanel, Results};
use crate::activations::{BlockTile, Tile};
use crate::blocks::BlockFormat;
use crate::panels::{Place, Scales};
use crate::{BLOCK, PANEL_ROWS};

pub(super) fn float(tile: &FloatTile<'_>, results: &mut Results) {
    let size = tile.format.block_bytes();
    for (row, sums) in (0..tile.rows).zip(&mut results.0) {
        *sums = [0.0; PANEL_ROWS];
        let inputs = &tile.values[row * tile.cols..][..tile.cols];
        for (values, &input) in tile.weights.chunks_exact(size * PANEL_ROWS).zip(inputs) {
            for (sum, raw) in sums.iter_mut().zip(values.chunks_exact(size)) {
                let weight = match (tile.format, raw) {
                    (BlockFormat::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
                    (BlockFormat::BF16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
                    (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
                    _ => f32::NAN,
                };
                *sum = weight.mul_add(input, *sum);
            }
        }
    }
}

pub(super) fn quantized(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    for block in 0..panel.layout.blocks {
        for lane in 0..PANEL_ROWS {
            let weights = Place { layout: panel.layout, block, lane }.read(panel.bytes);
            for row in 0..tile.rows {
                let sum = &mut results.0[row][lane];
                if block == 0 {
                    *sum = 0.0;
                }
                add_block(sum, &weights, panel.layout.scales, (&tile.blocks[block], row));
            }
        }
    }
}

fn add_block(sum: &mut f32, weights: &crate::blocks::Split, scales: Scales, (x, row): (&BlockTile, usize)) {
    let factors = &x.factors[row];
    let parts = if scales.halves() { 2 } else { 1 };
    let len = BLOCK / parts;
    for part in 0..parts {
        let range = part * len..(part + 1) * len;
        let pairs = weights.quants[range.clone()].iter().zip(&x.quants[row][range]);
        let dot: i32 = pairs.map(|(&w, &q)| i32::from(w) * i32::from(q)).sum();
        let scale = weights.scale * f32::from(weights.sub_scales[part]);
        *sum = (dot as f32).mul_add(scale * factors.scale, *sum);
        if scales.has_min() {
            let min = weights.min * f32::from(weights.sub_mins[part]);
            let x_sum = if parts == 2 { factors.half_scaled_sums[part] } else { factors.scaled_sum };
            *sum = min.mul_add(x_sum, *sum);
        }
    }
}
