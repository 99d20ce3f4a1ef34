//! The `motet` command: serve, chat, run, model, bench, config.
//!
//! `cli` is what can be typed, `config` what it means, `load` turns a model's name into an engine, and
//! one module per command does the work. A command returns a [`Failure`], which is one line on
//! standard error and an exit code.

mod accounts;
mod batches;
mod bench;
mod chat;
mod cli;
mod config;
mod config_check;
#[cfg(test)]
mod described;
mod embed;
mod failure;
mod generate;
mod load;
mod logs;
mod models;
mod output;
mod progress;
mod run;
mod safety;
mod serve;
mod signals;

use std::{collections::BTreeMap, process::ExitCode};

use clap::{CommandFactory, Parser, error::ErrorKind};
use cli::{Cli, Command, ConfigCommand, ModelCommand};
use config::{Config, RawConfig, Sources};
use failure::Failure;

fn main() -> ExitCode {
    logs::report_panics_in_one_line();
    match parse().and_then(|cli| command(&cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(line) = failure.line() {
                output::say(&format!("error: {line}"));
            }
            failure.exit_code()
        }
    }
}

/// What was typed. Help and versions are printed here and end the process.
fn parse() -> Result<Cli, Failure> {
    Cli::try_parse().map_err(|error| {
        let is_mistake =
            error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if !is_mistake {
            error.exit();
        }
        let text = error.to_string();
        let parts = text.trim_start_matches("error: ").split("\n\n").map(str::trim);
        let told =
            parts.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
        Failure::usage(format!("{}; see motet --help", told.collect::<Vec<_>>().join("; ")))
    })
}

fn command(cli: &Cli) -> Result<(), Failure> {
    if let Command::Completions { shell } = &cli.command {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut Cli::command(), "motet", &mut script);
        return output::print(&String::from_utf8_lossy(&script));
    }
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    let sources = Sources { file: cli.global.config.clone(), variables, flags: cli.flags() };
    let raw = RawConfig::read(sources).map_err(Failure::usage)?;
    let config = Config::resolve(&raw).map_err(Failure::usage)?;
    logs::start(&config, if matches!(cli.command, Command::Serve(_)) { "info" } else { "warn" })?;

    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::runtime)?;
    let outcome = match &cli.command {
        Command::Serve(_) => runtime.block_on(serve::serve(&config)),
        Command::Chat(_) => chat::chat(&runtime, &config),
        Command::Run(args) => runtime.block_on(run::run(args, &config)),
        Command::Model(ModelCommand::List { json }) => models::list(*json),
        Command::Model(ModelCommand::Pull { model }) => runtime.block_on(models::pull(model)),
        Command::Model(ModelCommand::Inspect { model, json }) => {
            runtime.block_on(models::inspect(model.as_deref(), &config, *json))
        }
        Command::Config(ConfigCommand::Check(args)) => config_check::check(&raw, &config, args.json),
        Command::Keys(command) => runtime.block_on(accounts::keys(command, &config)),
        Command::Users(command) => runtime.block_on(accounts::users(command, &config)),
        Command::Usage(args) => runtime.block_on(accounts::usage(args, &config)),
        Command::Bench(command) => runtime.block_on(bench::bench(command, &config)),
        Command::Completions { .. } => Ok(()),
    };
    // A model that is still being loaded must not hold up the exit.
    runtime.shutdown_background();
    outcome
}
