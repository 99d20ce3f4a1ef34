use std::fmt::Write;

use crate::{
    config::{Config, ModelSettings, RawConfig},
    failure::Failure,
    output::{print, say},
    safety,
};

/// Prints each key, its value and where that came from. A configuration with a mistake does not get here.
pub(crate) fn check(raw: &RawConfig, config: &Config, as_json: bool) -> Result<(), Failure> {
    for warning in &raw.warnings {
        say(&format!("warning: {warning}"));
    }
    for provider in &config.oidc {
        // A secret that isn't there is a mistake too.
        provider.provider_config().map_err(Failure::usage)?;
    }
    // So is a list that can't be read.
    safety::rules(config)?;
    if as_json {
        return print(&format!("{:#}\n", json(config)));
    }
    let mut text = match &raw.file {
        Some(path) => format!("# {}\n", path.display()),
        None => "# no configuration file\n".to_owned(),
    };
    let rows = rows(config);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, values, sources) = (width(0), width(1), width(2));
    for [name, value, source, help] in &rows {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:names$} = {value:values$}  {source:sources$}  {help}");
    }
    text.push_str(
        "\nEach key is also a variable (engine.threads: MOTET_ENGINE_THREADS) and a flag (--threads);\n\
         models, lanes, tiers and oidc are [[models]], [[lanes]], [[tiers]] and [[oidc]] of the file alone.\n",
    );
    print(&text)
}

/// Name, value, origin and meaning of each setting.
fn rows(config: &Config) -> Vec<[String; 4]> {
    let keys = config.settings.iter().map(|setting| {
        let (key, shown) = (setting.key, quoted(&without_secrets(&setting.shown)));
        [key.name.to_owned(), shown, setting.source.to_string(), key.help.to_owned()]
    });
    let lanes = config.lanes.iter().map(|lane| {
        let help = "a lane in which requests wait".to_owned();
        [format!("lanes.{}", lane.config.name), lane.shown(), lane.source.to_string(), help]
    });
    let tiers = config.tiers.iter().map(|tier| {
        let help = "what accounts of this tier may use".to_owned();
        [format!("tiers.{}", tier.name), tier.shown(&config.lanes), tier.source.to_string(), help]
    });
    let models = tables_of_models(config).map(|model| {
        let help = match model.description.as_str() {
            "" => "a model that is served".to_owned(),
            description => description.to_owned(),
        };
        [format!("models.{}", model.label()), model.shown(), model.source.to_string(), help]
    });
    let oidc = config.oidc.iter().map(|provider| {
        let help = "a provider that people can sign in with".to_owned();
        [format!("oidc.{}", provider.name()), provider.shown(), provider.source.to_string(), help]
    });
    keys.chain(models).chain(lanes).chain(tiers).chain(oidc).collect()
}

/// Models that have a table: the one that is served without any is the key `model`.
fn tables_of_models(config: &Config) -> impl Iterator<Item = &ModelSettings> {
    config.models.iter().filter(|model| model.is_table)
}

fn json(config: &Config) -> serde_json::Value {
    let keys = config.settings.iter().map(|s| {
        serde_json::json!({
            "key": s.key.name, "value": without_secrets(&s.shown), "source": s.source.to_string(),
            "variable": s.key.variable(), "flag": s.key.flag,
        })
    });
    let lanes = config.lanes.iter().map(|lane| {
        serde_json::json!({
            "key": format!("lanes.{}", lane.config.name), "value": lane.shown(),
            "source": lane.source.to_string(), "variable": null, "flag": null,
        })
    });
    let tiers = config.tiers.iter().map(|tier| {
        serde_json::json!({
            "key": format!("tiers.{}", tier.name), "value": tier.shown(&config.lanes),
            "source": tier.source.to_string(), "variable": null, "flag": null,
        })
    });
    let models = tables_of_models(config).map(|model| {
        serde_json::json!({
            "key": format!("models.{}", model.label()), "value": model.shown(),
            "source": model.source.to_string(), "variable": null, "flag": null,
        })
    });
    let oidc = config.oidc.iter().map(|provider| {
        serde_json::json!({
            "key": format!("oidc.{}", provider.name()), "value": provider.shown(),
            "source": provider.source.to_string(), "variable": null, "flag": null,
        })
    });
    keys.chain(models).chain(lanes).chain(tiers).chain(oidc).collect()
}

/// The password of an address is nobody's business who reads over a shoulder.
fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    match rest.rsplit_once('@') {
        Some((login, place)) if login.contains(':') => {
            let user = login.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:…@{place}{query}")
        }
        _ => format!("{scheme}://{rest}{query}"),
    }
}

fn quoted(text: &str) -> String {
    if text.is_empty() || text.contains('\n') { format!("{text:?}") } else { text.to_owned() }
}
