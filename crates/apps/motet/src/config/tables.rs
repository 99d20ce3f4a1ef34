//! Settings that are lists of tables, such as `[[lanes]]`, and therefore neither flags nor variables.

use std::fmt::Display;

use toml::{Spanned, de::DeValue};

use super::{
    ConfigError, keys,
    raw::{Source, Written, text_of},
};

/// A list of tables that the file may have.
#[derive(Debug)]
pub(super) struct List {
    /// The list's name, such as `lanes`.
    pub(super) name: &'static str,
    /// What one of its tables is called in messages, such as `lane`.
    pub(super) one: &'static str,
    /// The keys that a table may have.
    pub(super) keys: &'static [&'static str],
    /// Those of them that take lists of texts, which are read as one text with commas.
    pub(super) lists: &'static [&'static str],
}

/// One table as written.
#[derive(Debug)]
pub(crate) struct RawTable {
    list: &'static List,
    pub(super) source: Source,
    values: Vec<(&'static str, Written)>,
}

/// Reads the value of a list; `at` says where an offset of the file is.
pub(super) fn read(
    list: &'static List,
    value: &Spanned<DeValue<'_>>,
    at: &dyn Fn(usize) -> Source,
) -> Result<Vec<RawTable>, ConfigError> {
    let List { name, one, .. } = list;
    let no_list = |source: Source| {
        ConfigError(format!(
            "{source}: {name} takes tables; write [[{name}]] and the keys of a {one} below it"
        ))
    };
    let DeValue::Array(tables) = value.get_ref() else { return Err(no_list(at(value.span().start))) };
    let mut read = Vec::new();
    for table in tables {
        let source = at(table.span().start);
        let DeValue::Table(entries) = table.get_ref() else { return Err(no_list(source)) };
        let mut values = Vec::new();
        for (key, value) in entries {
            values.push(list.entry(key.get_ref(), value, at(key.span().start))?);
        }
        read.push(RawTable { list, source, values });
    }
    if read.is_empty() {
        let source = at(value.span().start);
        return Err(ConfigError(format!(
            "{source}: {name} is empty; write at least one [[{name}]], or leave it out for the default {name}"
        )));
    }
    Ok(read)
}

impl List {
    fn entry(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        source: Source,
    ) -> Result<(&'static str, Written), ConfigError> {
        let Self { name, one, keys, lists } = self;
        let Some(known) = keys.iter().find(|known| **known == key) else {
            let similar = keys::most_similar(key, keys.iter().map(|key| ((*key).to_owned(), *key)));
            let hint = match similar {
                Some(key) => format!("did you mean {name}.{key}?"),
                None => format!("a {one} has {}", keys.join(", ")),
            };
            return Err(ConfigError(format!("{source}: unknown key {name}.{key}; {hint}")));
        };
        let text = match value.get_ref() {
            DeValue::Array(parts) if lists.contains(known) => {
                parts.iter().map(text_of).collect::<Option<Vec<_>>>().map(|parts| parts.join(","))
            }
            _ => text_of(value),
        };
        match text {
            Some(text) => Ok((*known, Written { text, source })),
            None => {
                let takes = if lists.contains(known) {
                    "a list of texts"
                } else {
                    "one value, not a list or a table"
                };
                Err(ConfigError(format!("{source}: {name}.{known} takes {takes}")))
            }
        }
    }
}

impl RawTable {
    /// The value of a key, where it is there.
    pub(super) fn read<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some((_, written)) = self.values.iter().find(|(name, _)| *name == key) else { return Ok(None) };
        let problem = |why: &dyn Display| {
            let list = self.list.name;
            ConfigError(format!("{list}.{key} = {:?} (from {}): {why}", written.text, written.source))
        };
        parse(&written.text).map(Some).map_err(|why| problem(&why))
    }

    /// Its name, which every table of these lists has.
    pub(super) fn name(&self) -> Result<String, ConfigError> {
        let List { name, one, .. } = self.list;
        self.read("name", plain_name)?
            .ok_or_else(|| ConfigError(format!("{}: a {one} without a name; add {name}.name", self.source)))
    }
}

/// A name that can be a label of metrics and a word of a header as it is.
fn plain_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err("not a name; write 1 to 64 of a-z, 0-9, - and _".to_owned())
}
