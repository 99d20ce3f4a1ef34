use motet_types::TokenId;

/// What every token adds to a text, all bytes after one another.
#[derive(Default)]
pub(super) struct TokenTexts {
    bytes: Vec<u8>,
    /// Token `i` is `bytes[ends[i - 1]..ends[i]]`.
    ends: Vec<u32>,
}

impl TokenTexts {
    /// One token for each of `texts`, whose bytes `append` adds.
    ///
    /// Together they are at most 2³² bytes, which the caller has checked.
    pub(super) fn new<T>(texts: impl Iterator<Item = T>, append: impl Fn(T, &mut Vec<u8>)) -> Self {
        let mut all = Self::default();
        for text in texts {
            append(text, &mut all.bytes);
            all.ends.push(all.bytes.len() as u32);
        }
        all
    }

    /// The bytes of a token; empty for an id outside the vocabulary.
    pub(super) fn get(&self, id: TokenId) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
