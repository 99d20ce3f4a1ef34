//! The KV memory of a model: one arena per layer, cut into the blocks of its group.

use motet_kernels::kv::{BLOCK_TOKENS, KvArena, KvFormat};
use motet_kv::GroupConfig;

use crate::ModelError;
use crate::config::{LayerGroup, ModelConfig};

/// Most blocks an arena has: 67 million tokens, far beyond what a CPU serves, bound the block tables.
const MAX_BLOCKS: usize = 1 << 22;
/// Memory is shared between the groups as sequences need it that are this many times as long as what a
/// windowed group holds of them.
const SEQUENCE_WINDOWS: usize = 2;
/// What a sequence holds of a windowed group beside the window: the blocks that a step fills, and a
/// partial one at either end.
const MARGIN_TOKENS: usize = 4 * BLOCK_TOKENS;

/// Groups of layers with their arenas.
pub(crate) struct KvMemory {
    /// One per layer.
    pub(crate) arenas: Vec<KvArena>,
    pub(crate) groups: Vec<LayerGroup>,
    /// Of every group, what its arenas hold.
    pub(crate) shapes: Vec<GroupConfig>,
}

impl KvMemory {
    /// Reserves `bytes`, or a little less.
    pub(crate) fn new(config: &ModelConfig, format: KvFormat, bytes: usize) -> Result<Self, ModelError> {
        let groups = config.groups();
        let block_bytes = format.block_bytes(config.head_shape());
        let blocks = share(&groups, config.context_length, bytes / block_bytes);
        if blocks.contains(&0) {
            let least = config.kv_block_bytes(format);
            return Err(ModelError::KvTooSmall { given: bytes, tokens: BLOCK_TOKENS, least });
        }
        let mut arenas: Vec<Option<KvArena>> = config.layers.iter().map(|_| None).collect();
        for (group, blocks) in groups.iter().zip(&blocks) {
            for layer in &group.layers {
                arenas[*layer] = KvArena::new(format, config.head_shape(), *blocks);
            }
        }
        let arenas: Option<Vec<KvArena>> = arenas.into_iter().collect();
        let shape = |(group, blocks): (&LayerGroup, &usize)| GroupConfig {
            blocks: *blocks as u32,
            window: group.window.map(|window| window.try_into().unwrap_or(u32::MAX)),
        };
        Ok(Self {
            arenas: arenas.ok_or(ModelError::OutOfMemory { bytes })?,
            shapes: groups.iter().zip(&blocks).map(shape).collect(),
            groups,
        })
    }
}

/// Blocks of every group, of `total` blocks of one layer: the most that fit in the proportion in which
/// sequences of [`SEQUENCE_WINDOWS`] windows hold them, but never so few that a window does not fit where
/// equal numbers would let it.
///
/// Longer sequences run out of blocks that are never left, shorter ones of windowed blocks; at this
/// length both last equally long.
fn share(groups: &[LayerGroup], context: usize, total: usize) -> Vec<usize> {
    let layers: usize = groups.iter().map(|group| group.layers.len()).sum();
    let equal = (total / layers).min(MAX_BLOCKS);
    let whole = groups.iter().position(|group| group.window.is_none());
    let (Some(whole), Some(window)) = (whole, groups.iter().filter_map(|group| group.window).max()) else {
        return vec![equal; groups.len()];
    };
    let sequence = window.saturating_add(MARGIN_TOKENS).saturating_mul(SEQUENCE_WINDOWS).min(context);
    let held = |group: &LayerGroup| held_blocks(group.window.unwrap_or(sequence), sequence);
    let needed: usize = groups.iter().map(|group| group.layers.len() * held(group)).sum();
    let mut blocks: Vec<usize> = groups
        .iter()
        .map(|group| {
            let fitting = group.window.map_or(0, |window| held_blocks(window, context));
            // A product of two numbers below 2⁶⁴ does not overflow 128 bits.
            let share = (total as u128 * held(group) as u128 / needed as u128) as usize;
            share.max(equal.min(fitting)).min(MAX_BLOCKS)
        })
        .collect();
    // What the windows do not take.
    let of = |index: usize, blocks: &[usize]| groups[index].layers.len() * blocks[index];
    let windowed: usize = (0..groups.len()).filter(|index| *index != whole).map(|i| of(i, &blocks)).sum();
    blocks[whole] = (total.saturating_sub(windowed) / groups[whole].layers.len()).min(MAX_BLOCKS);
    blocks
}

/// Most blocks of a windowed group that a sequence of `length` tokens holds; at least one.
pub(crate) fn held_blocks(window: usize, length: usize) -> usize {
    window.saturating_add(MARGIN_TOKENS).min(length).div_ceil(BLOCK_TOKENS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(windows: &[(Option<usize>, usize)]) -> Vec<LayerGroup> {
        let group =
            |&(window, layers): &(Option<usize>, usize)| LayerGroup { window, layers: (0..layers).collect() };
        windows.iter().map(group).collect()
    }

    fn check(windows: &[(Option<usize>, usize)], total: usize, expected: &[usize]) {
        let groups = groups(windows);
        let blocks = share(&groups, 32_768, total);
        assert_eq!(blocks, expected, "{windows:?} {total}");
        let used: usize = groups.iter().zip(&blocks).map(|(group, blocks)| group.layers.len() * blocks).sum();
        assert!(used <= total && used + groups.len() * 18 > total.min(used + 1), "{used} of {total}");
    }

    #[test]
    fn memory_is_shared_as_sequences_need_it() {
        check(&[(None, 30)], 3000, &[100]);
        check(&[(Some(64), 4)], 43, &[10]);
        // Gemma 3 270M: 1,152 tokens hold 72 blocks of each full layer and 36 of each windowed one.
        check(&[(None, 3), (Some(512), 15)], 756 * 10, &[720, 360]);
        // A window is fitted first, as far as equal numbers fit it.
        check(&[(None, 3), (Some(512), 15)], 18 * 40, &[60, 36]);
        check(&[(None, 3), (Some(512), 15)], 18 * 20, &[20, 20]);
        check(&[(None, 3), (Some(512), 15)], 18, &[1, 1]);
        // A window as long as the context leaves nothing out.
        check(&[(None, 2), (Some(32_768), 2)], 4 * 100, &[100, 100]);
    }

    #[test]
    fn too_little_is_none() {
        assert!(share(&groups(&[(None, 3), (Some(512), 15)]), 4096, 17).contains(&0));
        assert_eq!(share(&groups(&[(None, 3)]), 4096, 2), [0]);
    }
}
