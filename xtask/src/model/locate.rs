//! Asks pip where a wheel is, without fetching it.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// The address of the wheel whose file name starts with `stem`: `https:`, `http:` or `file:`.
///
/// `pip index versions -vv` names every file it considers; so the index, mirrors and local folders
/// of pip's configuration all count.
pub(crate) fn wheel_url(python: &Path, package: &str, stem: &str) -> Result<String> {
    let mut pip = sh::command(python);
    pip.args(["-m", "pip", "--no-input", "index", "versions", "-vv", package]);
    let text = sh::capture(&mut pip)?;
    let url = find_link(&text, stem).with_context(|| format!("pip names no wheel of {package}"))?;
    if url.contains("****@") {
        bail!("the index needs a password, which only pip has");
    }
    Ok(url)
}

/// The first address in pip's output that ends in a wheel with this stem.
fn find_link(text: &str, stem: &str) -> Option<String> {
    let links = text.lines().filter_map(|line| line.trim().strip_prefix("Found link "));
    // After the address come a comma or a blank and where it was found.
    let urls = links.filter_map(|link| link.split([',', ' ', '#']).next());
    let is_wanted = |url: &&str| {
        let file = url.rsplit('/').next().unwrap_or_default();
        file.starts_with(stem) && file.ends_with(".whl")
    };
    urls.filter(is_wanted).map(str::to_owned).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_read_from_what_pip_prints() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(find_link(text, "pkg-0.1.2-").as_deref(), expected, "{text}");
        };
        check("", None);
        check("Available versions: 0.1.2", None);
        check(
            "  Found link https://h/a/pkg-0.1-py3-none-any.whl (from https://h/simple/pkg/), version: 0.1\n  \
             Found link https://h/b/pkg-0.1.2.tar.gz (from https://h/simple/pkg/), version: 0.1.2\n  \
             Found link https://h/c/pkg-0.1.2-py3-none-any.whl (from https://h/simple/pkg/), version: 0.1.2\n",
            Some("https://h/c/pkg-0.1.2-py3-none-any.whl"),
        );
        check(
            "Found link https://h/pkg-0.1.2-py3-none-any.whl#sha256=ab (from x), version: 0.1.2",
            Some("https://h/pkg-0.1.2-py3-none-any.whl"),
        );
        check(
            "Found link file:///wheels/pkg-0.1.2-py3-none-any.whl, version: 0.1.2",
            Some("file:///wheels/pkg-0.1.2-py3-none-any.whl"),
        );
    }
}
