//! A byte trie over strings: the longest one that starts at a position, in one walk.

/// Children of a node, sorted by byte, and what ends there.
#[derive(Debug, Default, Clone)]
struct Node {
    children: Vec<(u8, u32)>,
    value: Option<u32>,
}

/// Maps byte strings to numbers; see [`Trie::walk`].
#[derive(Debug, Clone)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

/// What [`Trie::walk`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Walk {
    /// Length of the longest string that the text starts with and `accept` took, and its value.
    pub(crate) matched: Option<(usize, u32)>,
    /// How many bytes of the text begin some string of the trie.
    pub(crate) depth: usize,
}

impl Default for Trie {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl Trie {
    /// Adds `text`; a later value replaces an earlier one. Empty text is left out.
    pub(crate) fn insert(&mut self, text: &[u8], value: u32) {
        if text.is_empty() {
            return;
        }
        let mut at = 0;
        for &byte in text {
            at = match self.nodes[at].children.binary_search_by_key(&byte, |c| c.0) {
                Ok(i) => self.nodes[at].children[i].1 as usize,
                Err(i) => {
                    let next = self.nodes.len();
                    self.nodes.push(Node::default());
                    self.nodes[at].children.insert(i, (byte, next as u32));
                    next
                }
            };
        }
        self.nodes[at].value = Some(value);
    }

    /// Follows `text` as far as it goes.
    pub(crate) fn walk(&self, text: &[u8], accept: impl Fn(u32) -> bool) -> Walk {
        let mut found = Walk::default();
        let mut at = 0;
        for &byte in text {
            let Ok(i) = self.nodes[at].children.binary_search_by_key(&byte, |c| c.0) else { break };
            at = self.nodes[at].children[i].1 as usize;
            found.depth += 1;
            if let Some(value) = self.nodes[at].value.filter(|&v| accept(v)) {
                found.matched = Some((found.depth, value));
            }
        }
        found
    }

    /// Number of nodes, the root included.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether some string starts with `byte`.
    pub(crate) fn starts_with(&self, byte: u8) -> bool {
        self.nodes[0].children.binary_search_by_key(&byte, |c| c.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_takes_the_longest_accepted() {
        let mut trie = Trie::default();
        for (i, text) in ["ab", "abcd", "x", ""].iter().enumerate() {
            trie.insert(text.as_bytes(), i as u32);
        }
        let check = |text: &str, matched, depth| {
            assert_eq!(trie.walk(text.as_bytes(), |_| true), Walk { matched, depth }, "{text}");
        };
        check("abcde", Some((4, 1)), 4);
        check("abce", Some((2, 0)), 3);
        check("a", None, 1);
        check("", None, 0);
        check("xab", Some((1, 2)), 1);
        assert_eq!(trie.walk(b"abcd", |v| v == 0).matched, Some((2, 0)));
        assert!(trie.starts_with(b'a') && !trie.starts_with(b'b'));
    }
}
