//! Rebuilds a release binary when the web app appears or changes.

use std::path::Path;

/// Its modification time changes with every build of the web app.
const INDEX: &str = "../../../web/dist/index.html";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Only release builds embed the files. Cargo treats a watched file that is absent as changed, so
    // watching it in a debug build would recompile this crate every time nobody built the web app.
    let is_embedding = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_embedding || Path::new(INDEX).exists() {
        println!("cargo:rerun-if-changed={INDEX}");
    }
}
