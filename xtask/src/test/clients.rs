//! Real clients against a real server: curl, Python, Node and a browser.
//!
//! Every client gets the server's address in `MOTET_URL`, and that of one that asks for keys in `MOTET_ACCOUNTS_URL`
//! with the keys in `MOTET_KEYS`.

use super::counts::Runner;
use super::server::Server;
use super::{Outcome, Session, count, tools};
use crate::{model, paths, sh, web};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Starts the server; when only the clients run, it is built and the model fetched first.
pub(crate) fn start(session: &mut Session) -> Result<Outcome> {
    model::ensure()?;
    sh::run(sh::cargo().args(["build", "--workspace", "--bins", "--tests"]))?;
    session.server = Some(Server::start()?);
    session.accounts = Some(Server::start_with_accounts()?);
    Ok(Outcome::Passed)
}

/// Ends the server, which must have lived through all of it.
pub(crate) fn stop(session: &mut Session) -> Result<Outcome> {
    session.server.take().context("the server is not running")?.stop()?;
    session.accounts.take().context("the server with accounts is not running")?.0.stop()?;
    Ok(Outcome::Passed)
}

pub(crate) fn curl(session: &mut Session) -> Result<Outcome> {
    if sh::which("curl").is_none() || sh::which("bash").is_none() {
        return session.without("curl and bash are needed");
    }
    let script = folder("curl").join("run.sh");
    count_at(session, Runner::Plain, sh::command("bash").arg(script))
}

pub(crate) fn python(session: &mut Session) -> Result<Outcome> {
    let Some(python3) = sh::which("python3") else {
        return session.without("python3 is not installed");
    };
    let dir = folder("python");
    let python = match virtual_environment(&python3, &dir.join("requirements.txt")) {
        Ok(python) => python,
        Err(error) => return session.without(&format!("no Python packages for the tests: {error:#}")),
    };
    let mut pytest = sh::command(python);
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]).arg(&dir).current_dir(&dir);
    count_at(session, Runner::Pytest, &mut pytest)
}

pub(crate) fn node(session: &mut Session) -> Result<Outcome> {
    if sh::which("npm").is_none() {
        return session.without("npm is not installed (Node 20 or newer brings it)");
    }
    let dir = folder("node");
    web::install(&dir)?;
    let mut tests = sh::command("node");
    tests.arg("--test").current_dir(&dir);
    count_at(session, Runner::Node, &mut tests)
}

pub(crate) fn browser(session: &mut Session) -> Result<Outcome> {
    if sh::which("npm").is_none() {
        return session.without("npm is not installed (Node 20 or newer brings it)");
    }
    let Some(browser) = tools::browser() else {
        return session.without("there is no Chromium for the browser tests");
    };
    let dir = paths::root().join("web");
    web::install(&dir)?;
    count_at(session, Runner::Vitest, web::npm(&dir).args(["run", "e2e"]).env("CHROMIUM_PATH", browser))
}

/// Runs a client's tests with the server's address; after a failure shows what the server wrote.
fn count_at(session: &Session, runner: Runner, command: &mut std::process::Command) -> Result<Outcome> {
    let server = session.server.as_ref().context("the server is not running")?;
    command.env("MOTET_URL", server.url());
    if let Some((accounts, keys)) = &session.accounts {
        command.env("MOTET_ACCOUNTS_URL", accounts.url()).env("MOTET_KEYS", keys);
    }
    let outcome = count(runner, command);
    if outcome.is_err() {
        println!("--- the end of the server's log ---\n{}", server.log_tail());
        if let Some((accounts, _)) = &session.accounts {
            println!("--- and of the one with accounts ---\n{}", accounts.log_tail());
        }
    }
    outcome
}

fn folder(client: &str) -> PathBuf {
    paths::root().join("tests/clients").join(client)
}

/// A Python with the required packages, in `target/`; made again when the requirements change.
fn virtual_environment(python3: &Path, requirements: &Path) -> Result<PathBuf> {
    let dir = paths::target().join("client-tests/venv");
    let python = dir.join("bin/python");
    let stamp = dir.join("requirements.txt");
    let wanted = fs::read(requirements)?;
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    println!("python: installing the packages of {}", requirements.display());
    sh::run(sh::command(python3).args(["-m", "venv", "--clear"]).arg(&dir))?;
    sh::run(sh::command(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(requirements))?;
    fs::write(stamp, wanted)?;
    Ok(python)
}
