//! The feed-forward layer's first half in one loop: `activation(x · gateᵀ) · (x · upᵀ)`, quantised for the second.

use std::cell::RefCell;

use motet_math::{gelu_tanh, silu};

use super::{PanelRun, Results, check};
use crate::activations::{BlockRows, quantize_block};
use crate::isa::{Kernel, on_isa};
use crate::pool::SendPtr;
use crate::{Activations, BLOCK, Isa, PANEL_ROWS, PackedMatrix, ThreadPool};

/// What a gate's values go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// x / (1 + e⁻ˣ).
    Silu,
    /// GELU in its tanh form.
    GeluTanh,
}

/// Panels whose columns make up one block of the next product's input.
const PANELS: usize = BLOCK / PANEL_ROWS;

/// Leaves `gate(x · gateᵀ) · (x · upᵀ)` in `out` for a product with `next`: quantised, and nothing else, where
/// `next` is; as f32 values otherwise.
///
/// A task computes 32 columns of both, which are one block of the result.
///
/// # Panics
/// Where sizes don't fit together or `x` wasn't quantised.
pub fn gated(
    pool: &ThreadPool,
    isa: Isa,
    x: &Activations,
    (activation, gate, up, next): (Gate, &PackedMatrix, &PackedMatrix, &PackedMatrix),
    out: &mut Activations,
) {
    check(x, gate);
    check(x, up);
    assert!(
        gate.rows() == up.rows() && gate.rows() == next.cols(),
        "columns of gate and up, and of what is next"
    );
    let width = gate.rows();
    let sink = if next.format().is_float() {
        Sink::Values { values: SendPtr(out.fill(x.rows(), width).as_mut_ptr()), width }
    } else {
        Sink::Blocks(out.blocks_only(x.rows(), width))
    };
    let task = Task { isa, x, activation, gate, up, sink };
    pool.run(width.div_ceil(BLOCK), &|block| FIRST_HALVES.with_borrow_mut(|halves| task.run(block, halves)));
}

thread_local! {
    /// The first 16 of a task's columns, for every row, until the others are there to be quantised with them.
    static FIRST_HALVES: RefCell<Vec<[f32; PANEL_ROWS]>> = const { RefCell::new(Vec::new()) };
}

struct Task<'a> {
    isa: Isa,
    x: &'a Activations,
    activation: Gate,
    gate: &'a PackedMatrix,
    up: &'a PackedMatrix,
    sink: Sink,
}

impl Task<'_> {
    /// Computes one block of columns: 16 of them for all rows, then the others, so that the two panels at work
    /// stay in the nearest cache.
    fn run(&self, block: usize, halves: &mut Vec<[f32; PANEL_ROWS]>) {
        if halves.len() < self.x.rows() {
            halves.resize(self.x.rows(), [0.0; PANEL_ROWS]);
        }
        let (mut gates, mut ups) = (Results::ZERO, Results::ZERO);
        for part in 0..PANELS {
            let panel = block * PANELS + part;
            if panel >= self.gate.panels() {
                break; // the second half of the last block of an odd width
            }
            let gate = PanelRun::new(self.isa, self.x, (self.gate, panel), 0);
            let up = PanelRun::new(self.isa, self.x, (self.up, panel), 1);
            for tile in 0..self.x.tiles() {
                gate.tile(tile, &mut gates);
                up.tile(tile, &mut ups);
                let rows = self.x.tile_rows(tile);
                let halves = &mut halves[rows.clone()];
                let results = (&gates, &ups);
                on_isa(self.isa, Combine { task: self, results, rows, panel, halves });
            }
        }
    }
}

/// Where results go.
enum Sink {
    Blocks(BlockRows),
    Values { values: SendPtr<f32>, width: usize },
}

struct Combine<'a> {
    task: &'a Task<'a>,
    results: (&'a Results, &'a Results),
    rows: std::ops::Range<usize>,
    panel: usize,
    halves: &'a mut [[f32; PANEL_ROWS]],
}

impl Kernel for Combine<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { task, results: (gates, ups), rows, panel, halves } = self;
        for ((row, half), (gates, ups)) in rows.zip(halves).zip(gates.0.iter().zip(&ups.0)) {
            let mut values = [0f32; PANEL_ROWS];
            match task.activation {
                Gate::Silu => combine(&mut values, gates, ups, silu),
                Gate::GeluTanh => combine(&mut values, gates, ups, gelu_tanh),
            }
            match &task.sink {
                Sink::Blocks(_) if panel.is_multiple_of(PANELS) => *half = values,
                Sink::Blocks(blocks) => {
                    let mut block = [0f32; BLOCK];
                    block[..PANEL_ROWS].copy_from_slice(half);
                    block[PANEL_ROWS..].copy_from_slice(&values);
                    // SAFETY: the task of this block of columns alone writes it; `gated` holds the activations.
                    unsafe { blocks.write(row, panel / PANELS, &quantize_block(&block)) };
                }
                Sink::Values { values: target, width } => {
                    let first = panel * PANEL_ROWS;
                    let count = PANEL_ROWS.min(width - first);
                    // SAFETY: as above; `first + count` columns of `width` exist in every row.
                    unsafe {
                        let target = target.get().add(row * width + first);
                        std::ptr::copy_nonoverlapping(values.as_ptr(), target, count);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn combine(
    values: &mut [f32; PANEL_ROWS],
    gates: &[f32; PANEL_ROWS],
    ups: &[f32; PANEL_ROWS],
    activation: impl Fn(f32) -> f32,
) {
    for ((value, gate), up) in values.iter_mut().zip(gates).zip(ups) {
        *value = activation(*gate) * up;
    }
}
