//! Writes the tiny embedding model to a folder: for the script that computes its golden vectors, and for the tests with
//! real clients.
#![allow(clippy::unwrap_used)]

fn main() {
    let folder = std::env::args_os().nth(1).unwrap();
    motet_testkit::TinyBert::default().write(folder.as_ref());
}
