use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt};

use crate::{config::Config, failure::Failure};

/// Starts logging to standard error. `usual` is the level where the configuration leaves it open.
pub(crate) fn start(config: &Config, usual: &str) -> Result<(), Failure> {
    let text = config.log.filter.as_deref().unwrap_or(usual);
    let filter = EnvFilter::try_new(text).map_err(|e| {
        Failure::usage(format!("log.filter = {text:?}: {e}; write such as info or motet_engine=debug"))
    })?;
    let is_coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(is_coloured);
    let outcome = if config.log.is_json { builder.json().try_init() } else { builder.try_init() };
    outcome.map_err(Failure::runtime)
}

/// Makes a panic one line that asks for a report, in place of a trace.
pub(crate) fn report_panics_in_one_line() {
    std::panic::set_hook(Box::new(|info| {
        let at = info.location().map_or_else(String::new, |l| format!(" at {}:{}", l.file(), l.line()));
        let what =
            info.payload_as_str().unwrap_or("no message").split_whitespace().collect::<Vec<_>>().join(" ");
        crate::output::say(&format!("error: a bug in Motet{at}: {what}; please report it"));
    }));
}
