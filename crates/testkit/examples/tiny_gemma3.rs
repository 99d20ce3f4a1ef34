//! Writes the tiny Gemma 3 model to a file, for the script that computes its golden logits.
#![allow(clippy::unwrap_used)]

fn main() {
    let path = std::env::args().nth(1).unwrap();
    std::fs::write(path, motet_testkit::TinyGemma3::default().builder().build()).unwrap();
}
