//! How many crates a user compiles for the `motet` command.

use super::Finding;
use crate::sh;
use anyhow::Result;
use std::collections::BTreeSet;

/// The most crates the default build may have.
pub(crate) const LIMIT: usize = 400;

/// How many crates `motet` has on this machine with default features, itself included; build and test ones aside.
pub(crate) fn count() -> Result<usize> {
    let mut tree = sh::cargo();
    tree.args(["tree", "-p", "motet", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    Ok(distinct(&sh::capture(&mut tree)?))
}

/// The distinct crates in cargo's list; one that comes again is marked.
fn distinct(tree: &str) -> usize {
    let crates =
        tree.lines().map(|line| line.trim_end_matches(" (*)").trim()).filter(|line| !line.is_empty());
    crates.collect::<BTreeSet<_>>().len()
}

/// A finding when there are more than the limit.
pub(crate) fn check(count: usize) -> Option<Finding> {
    let what = format!("motet has {count} crates, the limit is {LIMIT}: drop one or put it behind a feature");
    (count > LIMIT).then(|| Finding::error("Cargo.lock", what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_counts_once() {
        assert_eq!(distinct("motet v0.1.0\nserde v1.0.0\nserde v1.0.0 (*)\nserde v2.0.0\n\n"), 3);
        assert_eq!(check(LIMIT), None);
        assert!(check(LIMIT + 1).is_some());
    }
}
