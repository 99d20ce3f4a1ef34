//! `cargo xtask test`: every check there is, in one order, with one closing line.
//!
//! A check is a [`Step`]; it passes, fails, or is skipped with a reason. Under `CI` what is
//! skipped for want of a tool is a failure, so that a green run there means that everything ran.

mod aarch64;
mod clients;
mod counts;
mod report;
mod rust;
mod server;
mod tools;
mod web_app;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use counts::{Counts, Runner};
use report::Report;
use std::process::Command;
use std::time::Instant;

/// What `test` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
}

/// A part of the checks that can run by itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Format, lints, tidy, dependencies: what reads the source only
    Lint,
    /// Unit, property, integration and documentation tests
    Rust,
    /// Lints and tests of the kernels on an emulated aarch64
    Aarch64,
    /// The web app's lints, unit tests and build
    Web,
    /// Python, Node, curl and a browser against a real server
    Clients,
}

/// One check.
struct Step {
    part: Part,
    title: &'static str,
    run: fn(&mut Session) -> Result<Outcome>,
}

/// How a check ended, when it did not fail.
enum Outcome {
    /// It has nothing to count.
    Passed,
    /// A test runner counted.
    Counted(Counts),
    /// It did not run, for this reason.
    Skipped(String),
}

/// A test runner that found failures, with its numbers.
#[derive(Debug)]
struct RunnerFailed {
    /// What the runner counted, when it said so.
    counts: Option<Counts>,
    /// The command and how it ended.
    what: String,
}

impl std::fmt::Display for RunnerFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for RunnerFailed {}

/// What steps share.
struct Session {
    /// Whether this is continuous integration.
    is_ci: bool,
    /// The server for the clients, from the first step that needs it to the end of the run.
    server: Option<server::Server>,
    /// One that asks for keys, and these.
    accounts: Option<(server::Server, String)>,
}

impl Session {
    /// What a step without its tool comes to: skipped on a desk, failed in CI.
    fn without(&self, why: &str) -> Result<Outcome> {
        if self.is_ci {
            bail!("{why}");
        }
        Ok(Outcome::Skipped(why.to_owned()))
    }
}

/// All checks: cheap ones first, and what others need before them.
const STEPS: &[Step] = &[
    Step { part: Part::Lint, title: "format", run: rust::format },
    Step { part: Part::Lint, title: "tidy", run: rust::tidy },
    Step { part: Part::Lint, title: "clippy", run: rust::clippy },
    Step { part: Part::Lint, title: "dependencies", run: rust::deny },
    Step { part: Part::Web, title: "web lint", run: web_app::lint },
    Step { part: Part::Web, title: "web unit tests", run: web_app::unit },
    Step { part: Part::Web, title: "web build", run: web_app::build },
    Step { part: Part::Rust, title: "default model", run: rust::model },
    Step { part: Part::Rust, title: "tools for the rust tests", run: tools::install_for_rust },
    Step { part: Part::Rust, title: "rust tests", run: rust::tests },
    Step { part: Part::Rust, title: "rust doc tests", run: rust::doc_tests },
    Step { part: Part::Aarch64, title: "tools for aarch64", run: aarch64::install },
    Step { part: Part::Aarch64, title: "aarch64 clippy", run: aarch64::clippy },
    Step { part: Part::Aarch64, title: "aarch64 tests", run: aarch64::tests },
    Step { part: Part::Aarch64, title: "aarch64 without dotprod", run: aarch64::tests_without_dotprod },
    Step { part: Part::Clients, title: "tools for the clients", run: tools::install_for_clients },
    Step { part: Part::Clients, title: "server", run: clients::start },
    Step { part: Part::Clients, title: "curl", run: clients::curl },
    Step { part: Part::Clients, title: "python client", run: clients::python },
    Step { part: Part::Clients, title: "node client", run: clients::node },
    Step { part: Part::Clients, title: "browser", run: clients::browser },
    Step { part: Part::Clients, title: "server log", run: clients::stop },
];

/// Runs the chosen checks, prints what came out, and fails when one failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    let mut session = Session { is_ci, server: None, accounts: None };
    let mut report = Report::default();
    let is_chosen = |step: &&Step| args.only.is_empty() || args.only.contains(&step.part);
    for step in STEPS.iter().filter(is_chosen) {
        println!("\n=== {} ===", step.title);
        let start = Instant::now();
        let outcome = (step.run)(&mut session);
        let is_failure = outcome.is_err();
        report.add(step.title, start.elapsed(), outcome);
        if is_failure && !args.keep_going {
            break;
        }
    }
    // The servers go before the numbers are printed, so that they are the last lines.
    drop((session.server.take(), session.accounts.take()));
    report.print_and_judge()
}

/// Runs a test runner, shows what it writes, and reads its numbers.
fn count(runner: Runner, command: &mut Command) -> Result<Outcome> {
    let shown = crate::sh::shown(command);
    let teed = crate::sh::tee(command)?;
    let counts = counts::read(runner, &teed.text);
    if !teed.status.success() {
        let what = format!("`{shown}` failed ({})", teed.status);
        return Err(RunnerFailed { counts, what }.into());
    }
    let counts = counts.with_context(|| format!("`{shown}` ended well but printed no numbers"))?;
    Ok(Outcome::Counted(counts))
}
