/// A key of the configuration file, which is also a variable and a flag.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// `table.key` in the file.
    pub(crate) name: &'static str,
    /// The flag that overrides it.
    pub(crate) flag: &'static str,
    /// What holds when nobody says anything.
    pub(crate) default: &'static str,
    /// What it is, for `motet config check`.
    pub(crate) help: &'static str,
}

impl Key {
    /// The variable that overrides it: `engine.kv_memory` is `MOTET_ENGINE_KV_MEMORY`.
    pub(crate) fn variable(&self) -> String {
        format!("MOTET_{}", self.name.replace('.', "_").to_uppercase())
    }
}

const fn key(name: &'static str, flag: &'static str, default: &'static str, help: &'static str) -> Key {
    Key { name, flag, default, help }
}

/// Every key that has one value; `[[models]]`, `[[lanes]]`, `[[tiers]]` and `[[oidc]]` are lists.
pub(crate) const KEYS: [Key; 37] = [
    key("model", "--model", "default", "GGUF file, folder, or hf:owner/name[:file]"),
    key(
        "embedding_model",
        "--embedding-model",
        "",
        "folder of a BERT model for /v1/embeddings, named like the folder; empty: none",
    ),
    key("server.host", "--host", "127.0.0.1", "address to listen on"),
    key("server.port", "--port", "8080", "port to listen on; 0 takes a free one"),
    key(
        "server.auth",
        "--auth",
        "auto",
        "on: requests need an API key; auto: on where other machines can reach the server",
    ),
    key(
        "server.public_url",
        "--public-url",
        "",
        "where people open this server, such as https://chat.example, if a proxy stands before it",
    ),
    key(
        "accounts.store",
        "--store",
        "auto",
        "where accounts and usage are: sqlite:FILE or postgres://…; auto: motet/motet.db in the data folder",
    ),
    key(
        "accounts.redis",
        "--quota-redis",
        "",
        "redis://… where several gateways share limits; empty: in this process",
    ),
    key("files.max_bytes", "--files-max", "10GiB", "most bytes of files that an organisation may keep"),
    key("files.batch_lines", "--batch-lines", "8", "most lines of batches that are computed at once"),
    key("files.keep_output", "--keep-output", "720h", "how long the answers of a batch are kept"),
    key(
        "safety.rules",
        "--safety-rules",
        "",
        "TOML file of phrases to look for besides the built-in ones; empty: these alone",
    ),
    key(
        "engine.threads",
        "--threads",
        "auto",
        "threads that compute; auto: one per core, within the container's quota",
    ),
    key(
        "engine.kv_memory",
        "--kv-memory",
        "auto",
        "memory for conversations: 2GiB, 25% of what is free, 60000tok; auto: 25%, at most 2GiB",
    ),
    key(
        "engine.kv_format",
        "--kv-format",
        "f16",
        "keys and values: f16, or int8 in little more than half the memory",
    ),
    key("engine.prefix_cache", "--prefix-cache", "on", "on: prompts that begin alike are computed once"),
    key(
        "engine.cache_spill",
        "--cache-spill",
        "off",
        "most bytes on disk for what the prefix cache has no memory for, such as 8GiB",
    ),
    key(
        "engine.cache_spill_folder",
        "--cache-spill-folder",
        "auto",
        "where they are; auto: motet/spill in the cache folder",
    ),
    key(
        "engine.cache_spill_age",
        "--cache-spill-age",
        "1h",
        "what was not used for so long is dropped from there",
    ),
    key("engine.max_running", "--max-running", "64", "most sequences that are computed at once"),
    key("engine.max_step_tokens", "--max-step-tokens", "512", "most tokens that are computed at once"),
    key(
        "engine.itl_target",
        "--itl-target",
        "50ms",
        "what 95 % of the gaps between a reply's tokens stay within",
    ),
    key(
        "ladder.enabled",
        "--ladder",
        "on",
        "on: when paid lanes have to wait, the others get less, step by step",
    ),
    key(
        "ladder.up",
        "--ladder-up",
        "0.7",
        "part of a promise that paid requests wait before more is given up",
    ),
    key("ladder.down", "--ladder-down", "0.3", "part of it below which less is given up"),
    key("ladder.climb_after", "--ladder-climb-after", "2s", "how long it takes until more is given up"),
    key("ladder.descend_after", "--ladder-descend-after", "10s", "how long it takes until less is given up"),
    key(
        "ladder.short_output",
        "--ladder-short-output",
        "512",
        "most tokens of shortened replies, where the request names no limit",
    ),
    key(
        "sampling.temperature",
        "--temperature",
        "0.2",
        "0 takes the likeliest token, 2 is wild; chat and run",
    ),
    key("sampling.top_p", "--top-p", "0.9", "share of probability to choose from; chat and run"),
    key("sampling.top_k", "--top-k", "0", "number of tokens to choose from, 0 for all; chat and run"),
    key("sampling.min_p", "--min-p", "0", "least probability relative to the likeliest token; chat and run"),
    key("sampling.seed", "--seed", "random", "the same seed gives the same reply; chat and run"),
    key("sampling.max_tokens", "--max-tokens", "1024", "longest reply in tokens; chat and run"),
    key("chat.system", "--system", "", "instructions before the conversation; empty: the model's own"),
    key(
        "log.filter",
        "--log",
        "auto",
        "what to log, such as debug or motet_engine=trace; auto: info for serve, else warn",
    ),
    key("log.format", "--log-format", "text", "text or json"),
];

/// Variables with the prefix that are not keys.
const OTHER_VARIABLES: [&str; 4] =
    ["MOTET_BENCH_API_KEY", "MOTET_CONFIG", "MOTET_SHARED", "MOTET_TEST_MODEL"];

/// The key named `name`.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The declared name most like `name`, when one is like it.
pub(crate) fn similar_key(name: &str) -> Option<&'static str> {
    most_similar(name, KEYS.iter().map(|key| (key.name.to_owned(), key.name)))
}

/// Whether a variable with the prefix is one of ours; if not, the one it may be meant to be.
pub(crate) fn check_variable(name: &str) -> Result<(), Option<String>> {
    if OTHER_VARIABLES.contains(&name) || KEYS.iter().any(|key| key.variable() == name) {
        return Ok(());
    }
    Err(most_similar(name, KEYS.iter().map(|key| (key.variable(), key.variable()))))
}

/// The value whose name of `known` is most like `name`, when one is like it.
pub(super) fn most_similar<T>(name: &str, known: impl Iterator<Item = (String, T)>) -> Option<T> {
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    known
        .map(|(text, value)| {
            // `port` alone, or under the wrong table, is as good a clue as a misspelt whole name.
            let by_last = if last(&text) == last(name) { 0.95 } else { 0.0 };
            (strsim::jaro_winkler(&text, name).max(by_last), value)
        })
        .filter(|(score, _)| *score > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, value)| value)
}
