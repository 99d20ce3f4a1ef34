//! Dependencies point down only: apps > edges > compute > cores > base.

use super::Finding;
use crate::sh;
use anyhow::Result;
use serde::Deserialize;

/// From the bottom up: a crate may use those of its own layer and of the layers before it.
const LAYERS: &[&str] = &["base", "cores", "compute", "edges", "apps"];
/// The crate for tests, which nothing may ship.
const TESTKIT: &str = "motet-testkit";
/// What a core may use besides crates of the project: nothing that does I/O, waits or tells the time.
const CORE_DEPENDENCIES: &[&str] = &["thiserror", "libm", "blake3", "smallvec", "serde"];

/// A crate of the workspace, as cargo describes it.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Where its `Cargo.toml` is.
    pub(crate) manifest_path: String,
    /// What it depends on.
    pub(crate) dependencies: Vec<Dependency>,
}

/// An entry of a dependency table.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    /// The name of the crate.
    pub(crate) name: String,
    /// `None` for a normal one, otherwise `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// The folder of a crate of the workspace.
    pub(crate) path: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The workspace's crates.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let json = sh::capture(sh::cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata = serde_json::from_str(&json)?;
    Ok(metadata.packages)
}

impl Package {
    /// Its folder from the project's root, such as `crates/base/types`.
    pub(crate) fn folder(&self) -> &str {
        let dir = self.manifest_path.trim_end_matches("/Cargo.toml");
        dir.rfind("/crates/").map_or(dir, |at| &dir[at + 1..])
    }

    fn layer(&self) -> Option<usize> {
        layer_of(self.folder())
    }
}

/// A layer's place from the bottom; `None` for what is outside the layers (testkit, xtask).
fn layer_of(folder: &str) -> Option<usize> {
    let (_, below) = folder.rsplit_once("crates/")?;
    let (layer, _) = below.split_once('/')?;
    LAYERS.iter().position(|name| *name == layer)
}

/// Edges that point up, the test crate outside tests, and what a core must not use.
pub(crate) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let shipped =
            package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        findings.extend(shipped.filter_map(|dependency| check_edge(package, dependency)));
    }
    findings
}

fn check_edge(package: &Package, dependency: &Dependency) -> Option<Finding> {
    let place = format!("{}/Cargo.toml", package.folder());
    let name = &dependency.name;
    if name == TESTKIT {
        return Some(Finding::error(place, format!("{TESTKIT} is for tests: make it a dev-dependency")));
    }
    let layer = package.layer()?;
    let Some(folder) = &dependency.path else {
        let is_core = LAYERS[layer] == "cores";
        let is_allowed = CORE_DEPENDENCIES.contains(&name.as_str());
        return (is_core && !is_allowed).then(|| {
            Finding::error(place, format!("a core may not use {name} (see xtask/src/tidy/layers.rs)"))
        });
    };
    match layer_of(folder) {
        Some(below) if below <= layer => None,
        Some(above) => Some(Finding::error(
            place,
            format!("{} must not depend on {name}, which is above it in {}", LAYERS[layer], LAYERS[above]),
        )),
        None => Some(Finding::error(place, format!("{name} is outside the layers"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, dependencies: &[(&str, Option<&str>, Option<&str>)]) -> Package {
        Package {
            name: folder.to_owned(),
            manifest_path: format!("/p/{folder}/Cargo.toml"),
            dependencies: dependencies
                .iter()
                .map(|(name, kind, path)| Dependency {
                    name: (*name).to_owned(),
                    kind: kind.map(str::to_owned),
                    path: path.map(|path| format!("/p/{path}")),
                })
                .collect(),
        }
    }

    #[test]
    fn edges_that_point_up_are_found() {
        let check = |folder: &str, dependency: (&str, Option<&str>, Option<&str>), is_good: bool| {
            let findings = check(&[package(folder, &[dependency])]);
            assert_eq!(findings.is_empty(), is_good, "{folder} → {dependency:?}: {findings:?}");
        };
        check("crates/cores/kv", ("motet-types", None, Some("crates/base/types")), true);
        check("crates/cores/sched", ("motet-kv", None, Some("crates/cores/kv")), true);
        check("crates/base/text", ("motet-kv", None, Some("crates/cores/kv")), false);
        check("crates/cores/kv", ("motet-gateway", Some("build"), Some("crates/edges/gateway")), false);
        check("crates/cores/kv", ("motet-model", Some("dev"), Some("crates/compute/model")), true);
        check("crates/apps/motet", ("motet-testkit", None, Some("crates/testkit")), false);
        check("crates/apps/motet", ("motet-testkit", Some("dev"), Some("crates/testkit")), true);
        check("crates/cores/kv", ("tokio", None, None), false);
        check("crates/cores/kv", ("thiserror", None, None), true);
        check("crates/edges/gateway", ("tokio", None, None), true);
        check("xtask", ("clap", None, None), true);
    }
}
