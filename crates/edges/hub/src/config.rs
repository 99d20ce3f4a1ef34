use std::{ffi::OsString, path::PathBuf};

use crate::{RetryPolicy, default_model::cache_home};

/// The public hub, used unless `HF_ENDPOINT` names another.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Where the hub and its cache are. Read once from the environment, then passed as a value.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Base address without a slash at the end (`HF_ENDPOINT`).
    pub endpoint: String,
    /// Sent to the hub, and only to it, as a bearer token (`HF_TOKEN`, or the file `$HF_HOME/token`).
    pub token: Option<String>,
    /// The shared cache (`HF_HUB_CACHE`, or `$HF_HOME/hub`).
    pub cache: PathBuf,
    /// Use the cache alone (`HF_HUB_OFFLINE`).
    pub is_offline: bool,
    /// GGUF files that come from no repository.
    pub models_dir: PathBuf,
    /// How often and how long to try again.
    pub retry: RetryPolicy,
}

impl HubConfig {
    /// The configuration of the process environment.
    pub fn from_env() -> Self {
        Self::from_vars(&|name| std::env::var_os(name))
    }

    /// The configuration that the variables `env` looks up describe; hub users' own names and
    /// precedence. Reads the token file when no variable has a token.
    pub fn from_vars(env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name).and_then(|value| value.into_string().ok());
        let folder = |name: &str| set(name).map(|value| expand_home(PathBuf::from(value), env));

        let home = folder("HF_HOME").unwrap_or_else(|| cache_home(env).join("huggingface"));
        let token_file = folder("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
        let token = text("HF_TOKEN")
            .or_else(|| text("HUGGING_FACE_HUB_TOKEN"))
            .or_else(|| std::fs::read_to_string(token_file).ok())
            .map(|token| token.trim().to_owned())
            .filter(|token| !token.is_empty());
        Self {
            endpoint: text("HF_ENDPOINT")
                .map_or_else(|| DEFAULT_ENDPOINT.to_owned(), |url| url.trim_end_matches('/').to_owned()),
            token,
            cache: folder("HF_HUB_CACHE")
                .or_else(|| folder("HUGGINGFACE_HUB_CACHE"))
                .unwrap_or_else(|| home.join("hub")),
            is_offline: text("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            models_dir: cache_home(env).join("motet/models"),
            retry: RetryPolicy::default(),
        }
    }
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
}

fn expand_home(path: PathBuf, env: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    match (path.strip_prefix("~"), env("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vars: &[(&str, &str)]) -> HubConfig {
        HubConfig::from_vars(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
    }

    #[test]
    fn reads_what_hub_users_set() {
        let plain = config(&[("HOME", "/home/u")]);
        assert_eq!(plain.endpoint, DEFAULT_ENDPOINT);
        assert_eq!(plain.cache, PathBuf::from("/home/u/.cache/huggingface/hub"));
        assert_eq!(plain.models_dir, PathBuf::from("/home/u/.cache/motet/models"));
        assert_eq!((plain.token, plain.is_offline), (None, false));

        let check = |vars: &[(&str, &str)], cache: &str| {
            assert_eq!(config(vars).cache, PathBuf::from(cache), "{vars:?}");
        };
        check(&[("HOME", "/home/u"), ("HF_HOME", "~/hf")], "/home/u/hf/hub");
        check(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")], "/c");
        check(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "")], "/hf/hub");
        check(&[("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");

        let set = config(&[("HF_ENDPOINT", "http://h:1/"), ("HF_TOKEN", " t\n"), ("HF_HUB_OFFLINE", "yes")]);
        assert_eq!(set.endpoint, "http://h:1");
        assert_eq!(set.token.as_deref(), Some("t"));
        assert!(set.is_offline);
    }

    #[test]
    fn reads_the_token_file() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "from-file\n").unwrap();
        let home = home.path().to_str().unwrap();
        assert_eq!(config(&[("HF_HOME", home)]).token.as_deref(), Some("from-file"));
        assert_eq!(config(&[("HF_HOME", home), ("HF_TOKEN", "t")]).token.as_deref(), Some("t"));
    }
}
