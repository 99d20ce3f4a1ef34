use std::{ffi::OsString, path::PathBuf};

/// The model that is served when none is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultModel {
    /// Its name, which users may write too.
    pub name: &'static str,
    /// The file in [`models_dir`].
    pub file: &'static str,
    /// Bytes of the file.
    pub size: u64,
    /// Lower-case hex sha256 of the file.
    pub sha256: &'static str,
}

/// The default model: small enough for any machine; `cargo xtask model` fetches it.
pub const DEFAULT_MODEL: DefaultModel = DefaultModel {
    name: "SmolLM2-135M-Instruct",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    size: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// Where models that come from no hub repository live: `$XDG_CACHE_HOME` or `~/.cache`, then `motet/models`.
pub fn models_dir() -> PathBuf {
    cache_home(&|name| std::env::var_os(name)).join("motet/models")
}

/// The user's cache folder. Without `HOME` it is relative to the working folder.
pub(crate) fn cache_home(env: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| set("HOME").unwrap_or_default().join(".cache"))
}
