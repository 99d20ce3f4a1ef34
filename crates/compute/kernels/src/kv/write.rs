//! Writing a step's keys and values into their blocks.
//!
//! A block is written by the one task that its number falls to, so that tasks never meet in one, whatever
//! the tables say.

use motet_math::ROUND_TO_INT;

use super::{BLOCK_TOKENS, KvArena, KvFormat, KvRows};
use crate::attention::HeadShape;
use crate::pool::SendPtr;
use crate::simd::{F32x16, LANES, SimdKernel, on_simd};
use crate::{Isa, ThreadPool};

/// Elements below which waking other threads takes longer than writing.
const WORTH_SHARING: usize = 1 << 14;
/// Tasks per thread, so that a slower one takes fewer.
const TASKS_PER_THREAD: usize = 4;

impl KvArena {
    /// Writes the keys and values of a step's tokens to where their spans' blocks have room for them.
    ///
    /// # Panics
    /// Where rows or blocks are missing.
    pub fn write(&mut self, pool: &ThreadPool, isa: Isa, rows: KvRows<'_>) {
        let HeadShape { kv_heads, head_dim, .. } = self.shape;
        let width = kv_heads * head_dim;
        let tokens = rows.spans.iter().map(|span| span.first_row + span.len).max().unwrap_or(0);
        assert!(rows.keys.len().min(rows.values.len()) >= tokens * width, "rows of the spans");
        assert!(rows.stored.is_empty() || rows.stored.len() == rows.spans.len(), "one for each span");
        let (format, block_bytes) = (self.format, self.format.block_bytes(self.shape));
        let bytes = self.bytes.as_mut_slice();
        let blocks = bytes.len().checked_div(block_bytes).unwrap_or(0);
        let arena = SendPtr(bytes.as_mut_ptr());
        let tasks = if tokens * width < WORTH_SHARING { 1 } else { pool.threads() * TASKS_PER_THREAD };
        pool.run(tasks, &|task| {
            for (index, span) in rows.spans.iter().enumerate() {
                let stored = rows.stored.get(index).map_or(0, |stored| *stored);
                let (mut position, end) = (span.start.max(stored), span.start + span.len);
                while position < end {
                    let slot = position % BLOCK_TOKENS;
                    let len = (BLOCK_TOKENS - slot).min(end - position);
                    let block = span.blocks[position / BLOCK_TOKENS] as usize;
                    assert!(block < blocks, "block {block} of {blocks}");
                    let first = (span.first_row + position - span.start) * width;
                    position += len;
                    if block % tasks != task {
                        continue;
                    }
                    // SAFETY: the block is inside the arena, and no other task takes its number.
                    let block = unsafe {
                        let start = arena.get().add(block * block_bytes);
                        std::slice::from_raw_parts_mut(start, block_bytes)
                    };
                    let (keys, values) = (&rows.keys[first..], &rows.values[first..]);
                    let tokens = Tokens { keys, values, slot, len, width, head_dim };
                    on_simd(isa, WriteBlock { format, tokens, block });
                }
            }
        });
    }
}

/// Neighbouring tokens of one block: their rows and the slot of the first.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    slot: usize,
    len: usize,
    /// Elements of a row.
    width: usize,
    head_dim: usize,
}

struct WriteBlock<'a> {
    format: KvFormat,
    tokens: Tokens<'a>,
    block: &'a mut [u8],
}

impl SimdKernel for WriteBlock<'_> {
    #[inline(always)]
    fn run<F: F32x16>(self) {
        let Self { format, tokens, block } = self;
        let section = format.section_bytes(tokens.head_dim);
        for (head, section) in block.chunks_exact_mut(section).enumerate() {
            match format {
                KvFormat::F32 => tokens.write::<F, f32>(head, section, &UNSCALED),
                KvFormat::F16 => tokens.write::<F, u16>(head, section, &UNSCALED),
                KvFormat::Int8 => {
                    let elements = 2 * BLOCK_TOKENS * tokens.head_dim;
                    let scales = tokens.write_scales(head, &mut section[elements..]);
                    tokens.write::<F, i8>(head, section, &scales);
                }
            }
        }
    }
}

/// Scales of a block's keys and values, by slot.
type Scales = [[f32; BLOCK_TOKENS]; 2];
const UNSCALED: Scales = [[1.0; BLOCK_TOKENS]; 2];

impl Tokens<'_> {
    /// Sets and returns the scales of these tokens; the other slots keep theirs.
    #[inline(always)]
    fn write_scales(&self, head: usize, section: &mut [u8]) -> Scales {
        let mut scales = UNSCALED;
        let (words, _) = section.as_chunks_mut::<4>();
        for (kind, rows) in [self.keys, self.values].into_iter().enumerate() {
            for token in 0..self.len {
                let row = &rows[token * self.width + head * self.head_dim..][..self.head_dim];
                let (slot, scale) = (self.slot + token, int8_scale(row));
                scales[kind][slot] = scale;
                words[kind * BLOCK_TOKENS + slot] = scale.to_ne_bytes();
            }
        }
        scales
    }

    /// Encodes one head, 16 elements of a token at a time; keys are transposed on the way.
    #[inline(always)]
    fn write<F: F32x16, E: Stored>(&self, head: usize, section: &mut [u8], scales: &Scales) {
        let Self { slot, len, width, head_dim, .. } = *self;
        assert!(section.len() >= 2 * head_dim * BLOCK_TOKENS * size_of::<E>() && slot + len <= BLOCK_TOKENS);
        let keys = section.as_mut_ptr().cast::<E>();
        for first in (0..head_dim).step_by(LANES) {
            let some = LANES.min(head_dim - first);
            let mut lines = [[E::default(); BLOCK_TOKENS]; LANES];
            for token in 0..len {
                let at = token * width + head * head_dim + first;
                let [key_scale, value_scale] = scales.map(|scales| scales[slot + token]);
                let key = encode::<F, E>(&self.keys[at..][..some], key_scale);
                for (line, key) in lines.iter_mut().zip(key) {
                    line[token] = key;
                }
                let value = encode::<F, E>(&self.values[at..][..some], value_scale);
                let to = (BLOCK_TOKENS + slot + token) * head_dim + first;
                // SAFETY: `some` elements inside the section's values, whose size is asserted.
                unsafe { copy(&value[..some], keys.add(to)) };
            }
            for (d, line) in lines[..some].iter().enumerate() {
                // SAFETY: `len` slots of one line of the section's keys.
                unsafe { copy(&line[..len], keys.add((first + d) * BLOCK_TOKENS + slot)) };
            }
        }
    }
}

/// # Safety
/// `to` is valid for writes of as many elements.
#[inline(always)]
unsafe fn copy<E: Copy>(from: &[E], to: *mut E) {
    // SAFETY: the source is a slice of its own, the target as the caller says; bytes need no alignment.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.as_ptr().cast(), size_of_val(from)) };
}

/// Up to 16 elements; the rest is zero.
#[inline(always)]
fn encode<F: F32x16, E: Stored>(elements: &[f32], scale: f32) -> [E; LANES] {
    if let Some(whole) = elements.first_chunk::<LANES>() {
        return E::encode::<F>(whole, scale);
    }
    let mut padded = [0f32; LANES];
    padded[..elements.len()].copy_from_slice(elements);
    E::encode::<F>(&padded, scale)
}

/// An element as it lies in a block.
trait Stored: Copy + Default {
    fn encode<F: F32x16>(elements: &[f32; LANES], scale: f32) -> [Self; LANES];
}

impl Stored for f32 {
    #[inline(always)]
    fn encode<F: F32x16>(elements: &[f32; LANES], _scale: f32) -> [f32; LANES] {
        *elements
    }
}

impl Stored for u16 {
    #[inline(always)]
    fn encode<F: F32x16>(elements: &[f32; LANES], _scale: f32) -> [u16; LANES] {
        let mut halves = [0; LANES];
        // SAFETY: both arrays hold 16 elements.
        unsafe { F::load(elements.as_ptr()).store_f16(halves.as_mut_ptr()) };
        halves
    }
}

impl Stored for i8 {
    #[inline(always)]
    fn encode<F: F32x16>(elements: &[f32; LANES], scale: f32) -> [i8; LANES] {
        let mut bytes = [0; LANES];
        for (byte, value) in bytes.iter_mut().zip(elements) {
            let quotient = (value / scale).clamp(-127.0, 127.0);
            // The low mantissa bits are the integer. A zero or NaN scale gives NaN quotients, which become 0.
            let integer = (quotient + ROUND_TO_INT).to_bits() as i8;
            *byte = if quotient.is_nan() { 0 } else { integer };
        }
        bytes
    }
}

/// Largest magnitude ÷ 127; NaN where a value is not finite, so that it stays visible.
#[inline(always)]
fn int8_scale(values: &[f32]) -> f32 {
    // The bits of magnitudes compare like the magnitudes, in any order, infinity and NaN above all.
    let largest = values.iter().fold(0, |largest, v| largest.max(v.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    if largest.is_finite() { largest / 127.0 } else { f32::NAN }
}
