//! `cargo xtask serve`: from a clone to a server that answers.

use crate::{model, paths, sh, web};
use anyhow::{Context, Result};
use std::process::Command;

/// What `serve` takes; whatever it does not know goes to `motet serve`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do not build the web app
    #[arg(long)]
    pub(crate) no_web: bool,
    /// Arguments for `motet serve`, such as --port 9000 or --model FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) serve_args: Vec<String>,
}

/// Builds what is stale, fetches the default model when it is the one to serve, and becomes the server.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.no_web {
        println!("web: not built (--no-web)");
    } else {
        web::build_if_stale()?;
    }
    println!("server: cargo build --release -p motet");
    sh::run(sh::cargo().args(["build", "--release", "-p", "motet"]))?;
    if std::env::var_os("MOTET_MODEL").is_none() && needs_default_model(&args.serve_args) {
        model::ensure()?;
    }
    let mut server = Command::new(paths::target().join("release/motet"));
    server.arg("serve").args(&args.serve_args);
    become_process(&mut server)
}

/// Whether the arguments start a server and name no other model.
fn needs_default_model(serve_args: &[String]) -> bool {
    let other = |arg: &String| arg == "--model" || arg == "-m" || arg.starts_with("--model=");
    let asks_only = |arg: &String| arg == "--help" || arg == "-h";
    !serve_args.iter().any(|arg| other(arg) || asks_only(arg))
}

/// Replaces this process, so that signals and the exit code are the server's own.
#[cfg(unix)]
fn become_process(command: &mut Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))
}

#[cfg(not(unix))]
fn become_process(command: &mut Command) -> Result<()> {
    sh::run(command).context("the server stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_model_needs_no_default() {
        let check = |args: &[&str], expected: bool| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(needs_default_model(&args), expected, "{args:?}");
        };
        check(&[], true);
        check(&["--port", "9000"], true);
        check(&["--model", "x.gguf"], false);
        check(&["--model=hf:owner/name"], false);
        check(&["--help"], false);
    }
}
