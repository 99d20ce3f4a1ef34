use std::path::{Path, PathBuf};

/// The file name the default model has in the model cache.
const DEFAULT_MODEL_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The file name of Gemma 3 270M that the reference data was made with.
const GEMMA3_FILE: &str = "gemma-3-270m-q4_k_m.gguf";

/// A path below the reference folder beside the project (`../shared`, or `MOTET_SHARED`), when it is there.
///
/// ```ignore
/// let Some(dir) = testkit::shared("reference/tokenizers") else { return };
/// ```
pub fn shared(relative: &str) -> Option<PathBuf> {
    let root =
        std::env::var_os("MOTET_SHARED").map_or_else(|| project_root().join("../shared"), PathBuf::from);
    let path = root.join(relative);
    if path.exists() {
        return Some(path);
    }
    skip(&format!("reference data {relative} is not beside the project"));
    None
}

/// The default model's GGUF file, from `MOTET_TEST_MODEL` or the user's model cache, when it is there.
pub fn default_model() -> Option<PathBuf> {
    let why = "the default model is not in the cache (cargo xtask model fetches it)";
    model("MOTET_TEST_MODEL", DEFAULT_MODEL_FILE, why)
}

/// A GGUF file of Gemma 3 270M, from `MOTET_TEST_GEMMA3` or the user's model cache, when it is there.
pub fn gemma3_model() -> Option<PathBuf> {
    let why = "Gemma 3 270M is not in the cache (MOTET_TEST_GEMMA3 can name its file)";
    model("MOTET_TEST_GEMMA3", GEMMA3_FILE, why)
}

/// A folder with all-MiniLM-L6-v2, from `MOTET_TEST_EMBEDDING` or the user's model cache, when it is there.
pub fn embedding_model() -> Option<PathBuf> {
    let why = "all-MiniLM-L6-v2 is not in the cache (cargo xtask model --embedding fetches it)";
    model("MOTET_TEST_EMBEDDING", "all-MiniLM-L6-v2", why)
}

fn model(variable: &str, file: &str, why: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable)
        .map(PathBuf::from)
        .unwrap_or_else(|| cache_root().join("motet/models").join(file));
    if path.exists() {
        return Some(path);
    }
    skip(why);
    None
}

/// Says on stderr why a test does nothing.
#[allow(clippy::print_stderr)]
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

fn cache_root() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home().join(".cache"), PathBuf::from)
}

fn project_root() -> &'static Path {
    // crates/testkit → project
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
