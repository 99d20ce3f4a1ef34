//! Reference data, the real model's vocabulary, and properties that go through the public API.

// Helpers of tests fail by panicking; the lint knows only the bodies of test functions.
#![allow(clippy::unwrap_used, clippy::panic)]

mod gguf;
mod jinja;
mod prompt;
mod reply;
mod tiny;
mod tokenizer;
mod wordpiece;
