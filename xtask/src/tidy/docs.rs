//! Every crate has its place on the map, and every setting its line in the configuration page.

use super::layers::Package;
use super::{Finding, SourceFile};

const MAP: &str = "docs/ARCHITECTURE.md";
const SETTINGS: &str = "docs/configuration.md";
/// Where the settings are declared, each as `key("name", …)`.
const KEYS: &str = "crates/apps/motet/src/config/keys.rs";

/// A finding for every crate whose folder the map does not name.
pub(crate) fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Finding> {
    let Some(map) = files.iter().find(|file| file.path == MAP) else {
        return vec![Finding::error(MAP, "there is no map of the crates")];
    };
    let missing = packages.iter().filter(|package| !map.text.contains(&format!("`{}`", place(package))));
    missing
        .map(|package| Finding::error(MAP, format!("does not say what `{}` is for", place(package))))
        .collect()
}

fn place(package: &Package) -> &str {
    let folder = package.folder();
    if folder.starts_with("crates/") { folder } else { &package.name }
}

/// A finding for every declared setting that the configuration page does not name.
pub(crate) fn check_settings(files: &[SourceFile]) -> Vec<Finding> {
    let text_of =
        |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str());
    let declared = text_of(KEYS).split(" key(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let page = text_of(SETTINGS);
    let missing = declared.filter(|key| !page.contains(&format!("| `{key}` |")));
    missing.map(|key| Finding::error(SETTINGS, format!("has no row for the key `{key}`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_the_map_leaves_out_is_found() {
        let package = |path: &str| Package {
            name: "xtask".to_owned(),
            manifest_path: format!("/p/{path}/Cargo.toml"),
            dependencies: Vec::new(),
        };
        let packages = [package("crates/base/types"), package("crates/cores/kv"), package("xtask")];
        let map =
            SourceFile { path: MAP.to_owned(), text: "`crates/base/types` names things; `xtask`".to_owned() };
        let findings = check(&packages, &[map]);
        assert_eq!(findings, [Finding::error(MAP, "does not say what `crates/cores/kv` is for")]);
        assert_eq!(check(&packages, &[]).len(), 1);
    }

    #[test]
    fn a_setting_without_a_row_is_found() {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let keys = file(KEYS, "[\n    key(\"a.b\", \"--b\"),\n    key(\"c\", \"--c\"),\n]");
        let findings = check_settings(&[keys, file(SETTINGS, "| `a.b` | x |")]);
        assert_eq!(findings, [Finding::error(SETTINGS, "has no row for the key `c`")]);
    }
}
