//! Finding entries by name without a second copy of the names.

/// Positions of a list's entries, sorted by name. Names are unique.
#[derive(Debug, Default)]
pub(super) struct NameIndex(Vec<usize>);

impl NameIndex {
    /// Sorts `count` entries. Two with the same name are an error: the earlier and the later position.
    pub(super) fn build<'a>(count: usize, name: impl Fn(usize) -> &'a str) -> Result<Self, (usize, usize)> {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| name(a).cmp(name(b)));
        match order.windows(2).find(|pair| name(pair[0]) == name(pair[1])) {
            Some(pair) => Err((pair[0], pair[1])),
            None => Ok(NameIndex(order)),
        }
    }

    /// The position of the entry called `wanted`.
    pub(super) fn find<'a>(&self, wanted: &str, name: impl Fn(usize) -> &'a str) -> Option<usize> {
        self.0.binary_search_by(|&i| name(i).cmp(wanted)).ok().map(|slot| self.0[slot])
    }
}
