//! Checks of the web app.

use super::counts::Runner;
use super::{Outcome, Session, count};
use crate::{paths, sh, web};
use anyhow::Result;
use std::path::PathBuf;

const NO_NPM: &str = "npm is not installed (Node 20 or newer brings it)";

fn folder() -> PathBuf {
    paths::root().join("web")
}

pub(crate) fn lint(session: &mut Session) -> Result<Outcome> {
    if sh::which("npm").is_none() {
        return session.without(NO_NPM);
    }
    web::install(&folder())?;
    sh::run(web::npm(&folder()).args(["run", "lint"])).map(|()| Outcome::Passed)
}

pub(crate) fn unit(session: &mut Session) -> Result<Outcome> {
    if sh::which("npm").is_none() {
        return session.without(NO_NPM);
    }
    web::install(&folder())?;
    count(Runner::Vitest, web::npm(&folder()).args(["run", "test"]))
}

pub(crate) fn build(session: &mut Session) -> Result<Outcome> {
    if sh::which("npm").is_none() {
        return session.without(NO_NPM);
    }
    web::build_if_stale().map(|()| Outcome::Passed)
}
