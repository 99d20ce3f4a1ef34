//! Project automation: `cargo xtask <task>`.
//!
//! - `serve` builds everything, fetches the default model and starts the server.
//! - `model` fetches the default model into the user's cache; with `--embedding` one for embeddings.
//! - `test` runs every check there is, `tidy` the ones about the source tree itself.

// A command-line tool talks to its user on the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod model;
mod paths;
mod serve;
mod sh;
mod test;
mod tidy;
mod web;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, serve, test and tidy Motet", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the web app and the server, fetch the default model, and serve on 127.0.0.1:8080
    Serve(serve::Args),
    /// Fetch the default model into the cache folder, or say that it is there
    Model {
        /// A model for embeddings instead: all-MiniLM-L6-v2
        #[arg(long)]
        embedding: bool,
    },
    /// Run every check: format, lints, tidy, unit and integration tests, real clients, a browser
    Test(test::Args),
    /// Check the source tree: layers, sizes, words, docs, the number of dependencies
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Serve(args) => serve::run(&args),
        Task::Model { embedding: false } => model::ensure().map(|_| ()),
        Task::Model { embedding: true } => model::embedding::ensure().map(|_| ()),
        Task::Test(args) => test::run(&args),
        Task::Tidy => tidy::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serve_does_not_know_goes_to_the_server() {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let check = |words: &[&str], no_web: bool, expected: &[&str]| {
            let words = ["xtask", "serve"].iter().chain(words);
            let Task::Serve(args) = Cli::try_parse_from(words).unwrap().task else { unreachable!() };
            assert_eq!((args.no_web, args.serve_args.as_slice()), (no_web, owned(expected).as_slice()));
        };
        check(&[], false, &[]);
        check(&["--port", "9000"], false, &["--port", "9000"]);
        check(&["--no-web", "--model", "x.gguf"], true, &["--model", "x.gguf"]);
        check(&["--", "--help"], false, &["--help"]);
    }
}
