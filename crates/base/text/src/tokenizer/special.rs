//! Tokens that are matched as whole strings before any merging: control tokens and added ones.

use super::trie::{Trie, Walk};
use motet_types::TokenId;

/// Most bytes of a control token's text whose tails are indexed; published ones stay below 50.
const MAX_TAIL_BYTES: usize = 128;

/// Most nodes in the index of tails. A vocabulary with thousands of long control tokens fills it; tails
/// beyond are not recognised, which weakens only the guard against half-written tokens.
const MAX_TAIL_NODES: usize = 1 << 20;

/// What a span of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span<'a> {
    /// Text without special tokens.
    Plain(&'a str),
    /// One special token.
    Token(TokenId),
}

/// Which special tokens are cut out of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matched {
    /// Control tokens and added ones.
    All,
    /// Control tokens.
    Controls,
    /// Added tokens.
    Added,
    /// None.
    Nothing,
}

/// All strings that are matched whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Specials {
    /// Texts of control and added tokens → id.
    all: Trie,
    /// Texts of control tokens.
    controls: Trie,
    /// Proper tails of the texts of control tokens.
    tails: Trie,
    is_control: Vec<bool>,
}

impl Specials {
    /// `tokens`: every token's text where it is special, and whether it is a control token.
    pub(super) fn new(vocabulary: usize, tokens: impl Iterator<Item = (TokenId, String, bool)>) -> Self {
        let mut specials = Self { is_control: vec![false; vocabulary], ..Self::default() };
        for (id, text, is_control) in tokens {
            specials.all.insert(text.as_bytes(), id);
            if is_control {
                specials.is_control[id as usize] = true;
                specials.controls.insert(text.as_bytes(), id);
                specials.insert_tails(&text);
            }
        }
        specials
    }

    fn insert_tails(&mut self, text: &str) {
        if text.len() > MAX_TAIL_BYTES {
            return;
        }
        for (start, _) in text.char_indices().skip(1) {
            if self.tails.len() < MAX_TAIL_NODES {
                self.tails.insert(&text.as_bytes()[start..], 0);
            }
        }
    }

    pub(super) fn is_control(&self, id: TokenId) -> bool {
        self.is_control.get(id as usize).copied().unwrap_or(false)
    }

    /// Cuts `text` at special tokens: at every position the longest one that starts there.
    ///
    /// A token's text begins with the first byte of a character, so cuts fall between characters.
    pub(super) fn split<'a>(&self, text: &'a str, matched: Matched, mut span: impl FnMut(Span<'a>)) {
        let accept = |id| match matched {
            Matched::All => true,
            Matched::Controls => self.is_control(id),
            Matched::Added => !self.is_control(id),
            Matched::Nothing => false,
        };
        let bytes = text.as_bytes();
        let (mut start, mut at) = (0, 0);
        while at < bytes.len() {
            let found = match matched != Matched::Nothing && self.all.starts_with(bytes[at]) {
                true => self.all.walk(&bytes[at..], accept).matched,
                false => None,
            };
            let Some((len, id)) = found else {
                at += 1;
                continue;
            };
            if start < at {
                span(Span::Plain(&text[start..at]));
            }
            span(Span::Token(id));
            at += len;
            start = at;
        }
        if start < text.len() {
            span(Span::Plain(&text[start..]));
        }
    }

    /// Follows `text` into the texts of control tokens.
    pub(crate) fn control_walk(&self, text: &str) -> Walk {
        self.controls.walk(text.as_bytes(), |_| true)
    }

    /// Whether `text` begins with the tail of a control token's text.
    pub(crate) fn ends_control(&self, text: &str) -> bool {
        self.tails.walk(text.as_bytes(), |_| true).matched.is_some()
    }

    /// Whether `text` is a part of a control token's text, not at its start.
    pub(crate) fn is_inside_control(&self, text: &str) -> bool {
        !text.is_empty() && self.tails.walk(text.as_bytes(), |_| true).depth == text.len()
    }
}
