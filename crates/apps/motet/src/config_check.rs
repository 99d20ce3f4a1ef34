use std::fmt::Write;

use crate::{
    config::{Config, RawConfig},
    failure::Failure,
    output::{print, say},
};

/// Prints each key, its value and where that came from. A configuration with a mistake does not get here.
pub(crate) fn check(raw: &RawConfig, config: &Config, as_json: bool) -> Result<(), Failure> {
    for warning in &raw.warnings {
        say(&format!("warning: {warning}"));
    }
    if as_json {
        let settings: Vec<_> = config
            .settings
            .iter()
            .map(|s| {
                serde_json::json!({
                    "key": s.key.name, "value": s.shown, "source": s.source.to_string(),
                    "variable": s.key.variable(), "flag": s.key.flag,
                })
            })
            .collect();
        return print(&format!("{:#}\n", serde_json::Value::from(settings)));
    }
    let mut text = match &raw.file {
        Some(path) => format!("# {}\n", path.display()),
        None => "# no configuration file\n".to_owned(),
    };
    let width = |column: fn(&Config) -> Vec<usize>| column(config).into_iter().max().unwrap_or(0);
    let (names, values, sources) = (
        width(|c| c.settings.iter().map(|s| s.key.name.len()).collect()),
        width(|c| c.settings.iter().map(|s| quoted(&s.shown).chars().count()).collect()),
        width(|c| c.settings.iter().map(|s| s.source.to_string().chars().count()).collect()),
    );
    for setting in &config.settings {
        let (name, value, source) = (setting.key.name, quoted(&setting.shown), setting.source.to_string());
        let help = setting.key.help;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:names$} = {value:values$}  {source:sources$}  {help}");
    }
    text.push_str(
        "\nEach key is also a variable (engine.threads: MOTET_ENGINE_THREADS) and a flag (--threads).\n",
    );
    print(&text)
}

fn quoted(text: &str) -> String {
    if text.is_empty() || text.contains('\n') { format!("{text:?}") } else { text.to_owned() }
}
