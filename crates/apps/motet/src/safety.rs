//! From the configured list of phrases to the moderation endpoint.

use std::{fs::File, io::Read, path::Path, sync::Arc};

use motet_safety::{MAX_LIST_BYTES, Moderations, Rules};

use crate::{config::Config, failure::Failure};

/// The endpoint on the built-in rules and those of the configured file.
pub(crate) fn moderations(config: &Config) -> Result<Moderations, Failure> {
    Ok(Moderations::new(Arc::new(rules(config)?)))
}

/// The rules that are configured. A list with a mistake is an error: half of it would look like all of it.
pub(crate) fn rules(config: &Config) -> Result<Rules, Failure> {
    let Some(path) = &config.safety_rules else { return Rules::builtin().map_err(Failure::runtime) };
    let wrong = |why: String| Failure::usage(format!("safety.rules: {}: {why}", path.display()));
    let text = read(path).map_err(|error| wrong(error.to_string()))?;
    Rules::read(&text).map_err(|error| wrong(error.to_string()))
}

/// No more of the file than shows that it is too long.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LIST_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
