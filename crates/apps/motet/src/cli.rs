//! What can be typed. Values that are also configuration keys stay text here: `config` checks them,
//! so that a flag, a variable and a line of the file get the same checks and messages.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::accounts::{KeysCommand, UsageArgs, UsersCommand};
use crate::bench::BenchCommand;

const AFTER_HELP: &str = "\
Examples:
  motet chat                                   talk to the default model
  motet serve                                  web page and API on http://127.0.0.1:8080
  motet run \"Why is the sky blue?\"             one answer on standard output
  git diff | motet run \"Summarise this change\" text from a pipe follows the prompt
  motet model inspect tiny.gguf                what a model file holds

Models (--model): a GGUF file, a folder with one, the name of a model in `motet model list`,
hf:owner/name[:file] to fetch from a hub, or a name of [[models]] in the configuration. Without
--model: the first of those, or SmolLM2-135M-Instruct.

Every setting is also a line of ~/.config/motet/config.toml and a MOTET_… variable;
`motet config check` shows them all and where each value comes from.

Exit codes: 0 done, 1 failed while running, 2 a mistake in flags, configuration, model or port.";

/// A self-hosted conversational AI: chat, an OpenAI-compatible API, one binary.
#[derive(Debug, Parser)]
#[command(name = "motet", version, after_help = AFTER_HELP, max_term_width = 100, propagate_version = true)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Read this configuration file instead of ~/.config/motet/config.toml
    #[arg(long, global = true, value_name = "FILE", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
    /// What to log on standard error: error, warn, info, debug, trace, or crate=level,…
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Settings")]
    pub(crate) log: Option<String>,
    /// How logs look: text or json
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Settings")]
    pub(crate) log_format: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the web page and the OpenAI-compatible API
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Chat in the terminal
    #[command(after_help = CHAT_HELP)]
    Chat(ChatArgs),
    /// Answer one prompt on standard output
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// List, fetch and inspect models
    #[command(subcommand)]
    Model(ModelCommand),
    /// API keys: make, list, revoke
    #[command(subcommand)]
    Keys(KeysCommand),
    /// People and programs that may use the server
    #[command(subcommand)]
    Users(UsersCommand),
    /// What was used, by day and model
    Usage(UsageArgs),
    /// Measure speed: kernels, the engine, servers
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Explain the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

const SERVE_HELP: &str = "\
Examples:
  motet serve
  motet serve --port 9000 --model hf:owner/name:model.Q8_0.gguf
  motet serve --kv-memory 50% --kv-format int8 --cache-spill 8GiB
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"model\": \"SmolLM2-135M-Instruct\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'

Several models in one server: [[models]] of the configuration file, with names, aliases and roles;
--model then takes one of them, or another one alone.

The port opens at once; /healthz answers while the model loads, /readyz is 200 when it can answer.
Ctrl-C or SIGTERM lets replies in flight end, a second one stops at once. A model that can't be
loaded or a port that is in use: one line on standard error and exit code 2.";

const CHAT_HELP: &str = "\
In the chat: /help lists the commands. End a line with \\ to go on in the next, or put several
lines between \"\"\" and \"\"\". Ctrl-C stops a reply; at an empty prompt it leaves, as Ctrl-D does.";

const RUN_HELP: &str = "\
Examples:
  motet run \"Write a haiku about rain\"
  motet run < question.txt
  cat notes.txt | motet run \"Summarise:\" > summary.txt
  motet run --raw --max-tokens 20 \"Once upon a time\"

Only the answer goes to standard output. Exit codes: 0 done, 1 failed while running,
2 a mistake in flags, configuration or model, 130 stopped by Ctrl-C.";

const COMPLETIONS_HELP: &str = "\
Examples:
  motet completions bash > ~/.local/share/bash-completion/completions/motet
  motet completions zsh > ~/.zfunc/_motet
  motet completions fish > ~/.config/fish/completions/motet.fish";

/// Which model and what it may use.
#[derive(Debug, Default, Args)]
pub(crate) struct EngineArgs {
    /// GGUF file, folder, name from `motet model list`, or hf:owner/name[:file]
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// Memory for conversations: 1GiB, 25% of what is free, 60000tok [default: 25%, at most 2GiB]
    #[arg(long, value_name = "SIZE")]
    kv_memory: Option<String>,
    /// How keys and values are kept: f16, or int8 in little more than half the memory [default: f16]
    #[arg(long, value_name = "FORMAT")]
    kv_format: Option<String>,
}

/// How many are served at once, and what is kept of them.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Batch and cache")]
pub(crate) struct BatchArgs {
    /// Most sequences that are computed at once [default: 64]
    #[arg(long, value_name = "N")]
    max_running: Option<String>,
    /// Most tokens that are computed at once [default: 512]
    #[arg(long, value_name = "N")]
    max_step_tokens: Option<String>,
    /// What 95 % of the gaps between a reply's tokens stay within [default: 50ms]
    #[arg(long, value_name = "TIME")]
    itl_target: Option<String>,
    /// Compute prompts that begin alike once: on or off [default: on]
    #[arg(long, value_name = "SWITCH")]
    prefix_cache: Option<String>,
    /// Keep on disk what the prefix cache has no memory for, at most so much, such as 8GiB [default: off]
    #[arg(long, value_name = "SIZE")]
    cache_spill: Option<String>,
    /// Where that is [default: motet/spill in the cache folder]
    #[arg(long, value_name = "FOLDER")]
    cache_spill_folder: Option<String>,
    /// Drop from there what was not used for so long [default: 1h]
    #[arg(long, value_name = "TIME")]
    cache_spill_age: Option<String>,
}

/// What is given up when there is too much to do.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Overload")]
pub(crate) struct LadderArgs {
    /// When paid lanes have to wait, give the others less, step by step: on or off [default: on]
    #[arg(long, value_name = "SWITCH")]
    ladder: Option<String>,
    /// Give up more when paid requests wait for this part of their promise [default: 0.7]
    #[arg(long, value_name = "PART")]
    ladder_up: Option<String>,
    /// Give up less when they wait for less than this part [default: 0.3]
    #[arg(long, value_name = "PART")]
    ladder_down: Option<String>,
    /// How long it takes until more is given up [default: 2s]
    #[arg(long, value_name = "TIME")]
    ladder_climb_after: Option<String>,
    /// How long it takes until less is given up [default: 10s]
    #[arg(long, value_name = "TIME")]
    ladder_descend_after: Option<String>,
    /// Most tokens of shortened replies, where the request names no limit [default: 512]
    #[arg(long, value_name = "N")]
    ladder_short_output: Option<String>,
}

/// How tokens are drawn.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// 0 takes the likeliest token each time, higher is more varied [default: 0.2]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<String>,
    /// Choose from the likeliest tokens with this share of probability [default: 0.9]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<String>,
    /// Choose from this many likeliest tokens; 0 is all [default: 0]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<String>,
    /// Drop tokens less likely than this share of the likeliest one [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<String>,
    /// The same seed, prompt and model give the same reply [default: random]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<String>,
    /// Longest reply in tokens [default: 1024]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_tokens: Option<String>,
    /// Instructions before the conversation [default: the model's own]
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

/// Where to listen.
#[derive(Debug, Default, Args)]
pub(crate) struct ListenArgs {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// Port to listen on; 0 takes a free one [default: 8080]
    #[arg(long, short, value_name = "PORT", allow_negative_numbers = true)]
    port: Option<String>,
    /// Whether requests need an API key: on, off (on loopback only), or auto: on beyond loopback
    /// [default: auto]
    #[arg(long, value_name = "SWITCH")]
    auth: Option<String>,
    /// Where people open this server, such as https://chat.example, if a proxy stands before it
    /// [default: this server itself]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Where accounts and usage are: sqlite:FILE or postgres://… [default: motet/motet.db in the data
    /// folder]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// redis://… where several gateways share limits [default: in this process]
    #[arg(long, value_name = "URL")]
    quota_redis: Option<String>,
    /// Folder of a BERT model that answers /v1/embeddings [default: none]
    #[arg(long, value_name = "FOLDER")]
    embedding_model: Option<String>,
    /// TOML file of phrases that /v1/moderations looks for besides the built-in ones [default: none]
    #[arg(long, value_name = "FILE")]
    safety_rules: Option<String>,
}

/// What files and batches may use.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Files and batches of requests")]
pub(crate) struct FileArgs {
    /// Most bytes of files that an organisation may keep [default: 10GiB]
    #[arg(long, value_name = "SIZE")]
    files_max: Option<String>,
    /// Most lines of batches that are computed at once [default: 8]
    #[arg(long, value_name = "N")]
    batch_lines: Option<String>,
    /// How long the answers of a batch are kept [default: 720h]
    #[arg(long, value_name = "TIME")]
    keep_output: Option<String>,
}

/// `motet serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// The same as --auth off
    #[arg(long, conflicts_with = "auth")]
    no_auth: bool,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    ladder: LadderArgs,
}

/// `motet chat`.
#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// `motet run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to ask; piped standard input follows it
    pub(crate) prompt: Vec<String>,
    /// Continue the text as it is, without the model's chat template
    #[arg(long, conflicts_with = "system")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// `motet model …`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Models that are on this machine
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Fetch a model from a hub and print its path
    #[command(after_help = PULL_HELP)]
    Pull {
        /// hf:owner/name[:file]
        model: String,
    },
    /// What a model file holds, read from its header
    Inspect {
        /// GGUF file, folder, name from `motet model list`, or hf:owner/name[:file]
        model: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

const PULL_HELP: &str = "\
Examples:
  motet model pull hf:owner/name-GGUF
  motet model pull hf:owner/name-GGUF:Q8_0

An interrupted download resumes. The hub is the one of HF_ENDPOINT, with the token of HF_TOKEN;
files go to the cache of HF_HOME that other hub programs share. With HF_HUB_OFFLINE=1 the cache
alone is used.";

/// `motet config …`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and print each setting with its origin
    Check(CheckArgs),
}

/// `motet config check`: the flags of all commands, to see what they do.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    ladder: LadderArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

impl Cli {
    /// Names of configuration keys and what their flags say.
    pub(crate) fn flags(&self) -> Vec<(&'static str, String)> {
        let global = [("log.filter", &self.global.log), ("log.format", &self.global.log_format)];
        let mut all = global.to_vec();
        match &self.command {
            Command::Serve(args) => {
                all.extend(args.listen.flags());
                all.extend(args.engine.flags());
                all.extend(args.batch.flags());
                all.extend(args.files.flags());
                all.extend(args.ladder.flags());
            }
            Command::Chat(args) => {
                all.extend(args.engine.flags());
                all.extend(args.sampling.flags());
            }
            Command::Run(args) => {
                all.extend(args.engine.flags());
                all.extend(args.sampling.flags());
            }
            Command::Config(ConfigCommand::Check(args)) => {
                all.extend(args.listen.flags());
                all.extend(args.engine.flags());
                all.extend(args.batch.flags());
                all.extend(args.files.flags());
                all.extend(args.ladder.flags());
                all.extend(args.sampling.flags());
            }
            Command::Bench(command) => all.extend(command.flags()),
            Command::Model(_)
            | Command::Keys(_)
            | Command::Users(_)
            | Command::Usage(_)
            | Command::Completions { .. } => {}
        }
        let mut flags: Vec<_> =
            all.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect();
        if let Command::Serve(ServeArgs { no_auth: true, .. }) = &self.command {
            flags.push(("server.auth", "off".to_owned()));
        }
        flags
    }
}

type Flag<'a> = (&'static str, &'a Option<String>);

impl ListenArgs {
    fn flags(&self) -> [Flag<'_>; 8] {
        [
            ("server.host", &self.host),
            ("server.port", &self.port),
            ("server.auth", &self.auth),
            ("server.public_url", &self.public_url),
            ("accounts.store", &self.store),
            ("accounts.redis", &self.quota_redis),
            ("embedding_model", &self.embedding_model),
            ("safety.rules", &self.safety_rules),
        ]
    }
}

impl EngineArgs {
    fn flags(&self) -> [Flag<'_>; 4] {
        [
            ("model", &self.model),
            ("engine.threads", &self.threads),
            ("engine.kv_memory", &self.kv_memory),
            ("engine.kv_format", &self.kv_format),
        ]
    }
}

impl BatchArgs {
    fn flags(&self) -> [Flag<'_>; 7] {
        [
            ("engine.max_running", &self.max_running),
            ("engine.max_step_tokens", &self.max_step_tokens),
            ("engine.itl_target", &self.itl_target),
            ("engine.prefix_cache", &self.prefix_cache),
            ("engine.cache_spill", &self.cache_spill),
            ("engine.cache_spill_folder", &self.cache_spill_folder),
            ("engine.cache_spill_age", &self.cache_spill_age),
        ]
    }
}

impl FileArgs {
    fn flags(&self) -> [Flag<'_>; 3] {
        [
            ("files.max_bytes", &self.files_max),
            ("files.batch_lines", &self.batch_lines),
            ("files.keep_output", &self.keep_output),
        ]
    }
}

impl LadderArgs {
    fn flags(&self) -> [Flag<'_>; 6] {
        [
            ("ladder.enabled", &self.ladder),
            ("ladder.up", &self.ladder_up),
            ("ladder.down", &self.ladder_down),
            ("ladder.climb_after", &self.ladder_climb_after),
            ("ladder.descend_after", &self.ladder_descend_after),
            ("ladder.short_output", &self.ladder_short_output),
        ]
    }
}

impl SamplingArgs {
    fn flags(&self) -> [Flag<'_>; 7] {
        [
            ("sampling.temperature", &self.temperature),
            ("sampling.top_p", &self.top_p),
            ("sampling.top_k", &self.top_k),
            ("sampling.min_p", &self.min_p),
            ("sampling.seed", &self.seed),
            ("sampling.max_tokens", &self.max_tokens),
            ("chat.system", &self.system),
        ]
    }
}
