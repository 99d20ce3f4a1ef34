//! `motet model …`: what is here, fetching more, looking inside.

mod inspect;

use std::fmt::Write;

use motet_hub::{DEFAULT_MODEL, HubConfig, ModelRef, installed};

pub(crate) use inspect::inspect;

use crate::{
    config::human_bytes,
    failure::Failure,
    load::find,
    output::{harmless, print},
};

/// Lists the models that need no network.
pub(crate) fn list(as_json: bool) -> Result<(), Failure> {
    let config = HubConfig::from_env();
    let all = installed(&config);
    let is_default = |path: &std::path::Path| path == config.models_dir.join(DEFAULT_MODEL.file);
    if as_json {
        let models: Vec<_> = all
            .iter()
            .map(|m| {
                serde_json::json!({
                    "name": m.name, "path": m.path, "size_bytes": m.size, "is_default": is_default(&m.path),
                })
            })
            .collect();
        return print(&format!("{:#}\n", serde_json::Value::from(models)));
    }
    if all.is_empty() {
        return print(&format!(
            "No models yet. `cargo xtask model` fetches the default one ({}), \
             `motet model pull hf:owner/name` one from a hub.\n",
            DEFAULT_MODEL.name
        ));
    }
    let width = all.iter().map(|m| m.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for model in &all {
        let mark = if is_default(&model.path) { "  (default)" } else { "" };
        let (name, size) = (harmless(&model.name), human_bytes(model.size));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:width$}  {size:>9}  {}{mark}", model.path.display());
    }
    print(&text)
}

/// Fetches a model and prints its path, so that scripts can use it.
pub(crate) async fn pull(model: &str) -> Result<(), Failure> {
    let model: ModelRef = model.parse().map_err(Failure::usage)?;
    if let ModelRef::Path(path) = &model
        && !path.exists()
        && path.components().count() != 2
    {
        return Err(Failure::usage(format!(
            "{} is no hub repository; write hf:owner/name[:file]",
            path.display()
        )));
    }
    let path = find(&model).await?;
    print(&format!("{}\n", path.display()))
}
