use std::fmt;

use motet_types::TokenId;

/// Key of a cache's hashes: random, drawn by the caller at every boot, never stored.
///
/// With it unknown, nobody outside can build two prefixes that collide, nor tell from a hash what it is of.
#[derive(Clone)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// A key of 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A key for another purpose, which tells nothing of this one.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.0, purpose.as_bytes()).as_bytes()
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheKey(..)")
    }
}

/// Everything besides the tokens that a block's bytes, or the right to read them, depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScopeParts<'a> {
    /// The authenticated tenant; never taken from the request's body.
    pub tenant: &'a str,
    /// The weights: a digest of them, or a number drawn anew at each load. Not a display name, which may
    /// name other weights tomorrow.
    pub model: &'a str,
    /// The tokenizer's version or digest.
    pub tokenizer: &'a str,
    /// The adapter's weights, named as the model's are.
    pub adapter: Option<&'a str>,
    /// What the client asked to keep apart (`prompt_cache_key`). Only divides what the tenant has.
    pub namespace: Option<&'a str>,
}

/// Who may share blocks: sequences of equal scope and none else.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope([u8; 32]);

impl Scope {
    /// Binds `parts` to `key`. Parts are prefixed by their lengths, so no two lists of parts read the same.
    pub fn new(key: &CacheKey, parts: &ScopeParts) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        for part in
            [Some(parts.tenant), Some(parts.model), Some(parts.tokenizer), parts.adapter, parts.namespace]
        {
            match part {
                None => {
                    hasher.update(&[0]);
                }
                Some(text) => {
                    hasher.update(&[1]).update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
                }
            }
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The hash of a full block that follows `parent`.
    pub(crate) fn block(&self, parent: BlockHash, tokens: &[TokenId]) -> BlockHash {
        // One buffer: hashing token by token costs several times as much.
        let mut bytes = Vec::with_capacity(parent.0.len() + size_of_val(tokens));
        bytes.extend_from_slice(&parent.0);
        tokens.iter().for_each(|token| bytes.extend_from_slice(&token.to_le_bytes()));
        let mut truncated = [0; 16];
        truncated.copy_from_slice(&blake3::keyed_hash(&self.0, &bytes).as_bytes()[..16]);
        BlockHash(truncated)
    }

    /// The hashes of all full blocks of `tokens`.
    pub(crate) fn blocks(&self, tokens: &[TokenId], block_tokens: u32) -> Vec<BlockHash> {
        let mut parent = BlockHash::ROOT;
        let blocks = tokens.chunks_exact(block_tokens as usize);
        blocks
            .map(|block| {
                parent = self.block(parent, block);
                parent
            })
            .collect()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scope(..)")
    }
}

/// What a full block holds: keyed BLAKE3 over scope, parent and tokens, cut to 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash([u8; 16]);

impl BlockHash {
    /// The parent of the block at position 0.
    pub(crate) const ROOT: Self = Self([0; 16]);

    /// The hash's bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}
