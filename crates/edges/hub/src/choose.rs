//! Which GGUF of several to load.

use crate::{HubError, split::PartName};

/// Quantisations Motet's kernels compute with, best choice first: the nearest to the original
/// weights that still reads few bytes per token comes first.
const PREFERRED: [&str; 20] = [
    "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL",
    "IQ4_XS", "MXFP4", "F16", "BF16", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "F32",
];

/// A file that could be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Path inside the folder or repository, with `/`.
    pub(crate) name: String,
    /// Bytes, where known.
    pub(crate) size: Option<u64>,
}

/// Where candidates come from, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The folder or repository.
    pub(crate) name: &'a str,
    /// What to put before a file name to name it: `hf:owner/name:` or `folder/`.
    pub(crate) prefix: &'a str,
}

/// Chooses among `all`. In order: `wanted` by its full name, its last part, or its quantisation; the
/// only GGUF; the only one of the first quantisation of [`PREFERRED`] that is there. A model in parts
/// is chosen by its first part.
pub(crate) fn choose<'a>(
    all: &'a [Candidate],
    wanted: Option<&str>,
    place: Place<'_>,
) -> Result<&'a Candidate, HubError> {
    let usable: Vec<&Candidate> = all.iter().filter(|c| is_model(&c.name)).collect();
    if let Some(wanted) = wanted {
        return choose_named(all, &usable, wanted, place);
    }
    match usable.as_slice() {
        [] => Err(HubError::NoGguf { place: place.name.to_owned(), found: describe_others(all) }),
        [only] => Ok(only),
        several => PREFERRED
            .iter()
            .map(|quant| several.iter().filter(|c| quantisation(&c.name) == Some(quant)).collect::<Vec<_>>())
            .find(|of_quant| !of_quant.is_empty())
            .and_then(|of_quant| if let [one] = of_quant.as_slice() { Some(**one) } else { None })
            .ok_or_else(|| ambiguous(several, place)),
    }
}

fn choose_named<'a>(
    all: &'a [Candidate],
    usable: &[&'a Candidate],
    wanted: &str,
    place: Place<'_>,
) -> Result<&'a Candidate, HubError> {
    let first = PartName::parse(wanted).map(|part| part.name(1));
    let wanted = first.as_deref().unwrap_or(wanted);
    if let Some(exact) = all.iter().find(|c| c.name == wanted) {
        return Ok(exact);
    }
    let last_part = |c: &&&Candidate| c.name.rsplit('/').next() == Some(wanted);
    let of_quant = |c: &&&Candidate| quantisation(&c.name).is_some_and(|q| q.eq_ignore_ascii_case(wanted));
    let mut matching: Vec<&&Candidate> = usable.iter().filter(last_part).collect();
    if matching.is_empty() {
        matching = usable.iter().filter(of_quant).collect();
    }
    match matching.as_slice() {
        [one] => Ok(one),
        [] => Err(HubError::NoSuchFile {
            place: place.name.to_owned(),
            file: wanted.to_owned(),
            list: list(usable.iter().copied()),
        }),
        several => Err(ambiguous(&several.iter().map(|c| **c).collect::<Vec<_>>(), place)),
    }
}

fn describe_others(all: &[Candidate]) -> String {
    if all.iter().any(|c| c.name.ends_with(".safetensors")) {
        return "; it has safetensors weights, so look for a repository with \"GGUF\" in its name".to_owned();
    }
    String::new()
}

fn ambiguous(several: &[&Candidate], place: Place<'_>) -> HubError {
    let example = several.first().map_or_else(String::new, |c| format!("{}{}", place.prefix, c.name));
    HubError::Ambiguous { place: place.name.to_owned(), example, list: list(several.iter().copied()) }
}

/// Names and sizes, at most 20: an error is read in a terminal.
fn list<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> String {
    let mut names: Vec<String> = candidates
        .map(|c| c.size.map_or_else(|| c.name.clone(), |size| format!("{} ({})", c.name, human_size(size))))
        .collect();
    if names.is_empty() {
        return "no GGUF file".to_owned();
    }
    let more = names.len().saturating_sub(20);
    names.truncate(20);
    let tail = if more > 0 { format!(", and {more} more") } else { String::new() };
    names.join(", ") + &tail
}

/// Bytes in the unit a person reads, such as `98.4 MB`.
pub(crate) fn human_size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// A GGUF that stands for a language model: no later part of a split, no projector of a vision model.
fn is_model(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    is_gguf(name)
        && PartName::parse(name).is_none_or(|part| part.number == 1)
        && !last.starts_with("mmproj")
        && !last.contains("imatrix")
}

fn is_gguf(name: &str) -> bool {
    name.len() > 5 && name.as_bytes()[name.len() - 5..].eq_ignore_ascii_case(b".gguf")
}

/// The quantisation a file name ends in: the part after the last `.`, `-` or `_` boundary that makes
/// a known label, such as `Q4_K_M` in `model-Q4_K_M.gguf`. Only labels of [`PREFERRED`] and the
/// `K` and `IQ` families are recognised.
fn quantisation(name: &str) -> Option<&str> {
    let stem =
        PartName::parse(name).map_or_else(|| name.rsplit_once('.').map_or(name, |s| s.0), |part| part.prefix);
    stem.char_indices()
        .filter(|(at, c)| matches!(c, '.' | '-' | '_' | '/') && is_label(&stem[at + 1..]))
        .map(|(at, _)| &stem[at + 1..])
        .next()
        .map(canonical)
}

fn is_label(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    PREFERRED.contains(&upper.as_str())
        || upper == "FP16"
        || ((upper.starts_with('Q') || upper.starts_with("IQ"))
            && upper.len() <= 8
            && upper.contains('_')
            && upper
                .trim_start_matches("IQ")
                .trim_start_matches('Q')
                .starts_with(|c: char| c.is_ascii_digit()))
}

fn canonical(label: &str) -> &str {
    let same = |known: &&&str| known.eq_ignore_ascii_case(label);
    if label.eq_ignore_ascii_case("fp16") {
        "F16"
    } else {
        PREFERRED.iter().find(same).copied().unwrap_or(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], wanted: Option<&str>, expected: Result<&str, &str>) {
        let all: Vec<Candidate> =
            names.iter().map(|n| Candidate { name: (*n).to_owned(), size: Some(1_500_000) }).collect();
        let place = Place { name: "o/n", prefix: "hf:o/n:" };
        match (choose(&all, wanted, place), expected) {
            (Ok(got), Ok(name)) => assert_eq!(got.name, name),
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains(part) && !error.contains('\n'), "{names:?}: {error}");
            }
            (got, _) => panic!("{names:?} {wanted:?}: {got:?}, not {expected:?}"),
        }
    }

    #[test]
    fn chooses() {
        check(&["README.md", "a.gguf"], None, Ok("a.gguf"));
        check(&["a.Q4_K_M.gguf", "a.Q4_0.gguf", "a.Q8_0.gguf"], None, Ok("a.Q8_0.gguf"));
        check(&["a-q4_1.gguf", "a-f16.gguf"], None, Ok("a-q4_1.gguf"));
        check(&["m-fp16.gguf", "m-q2_k.gguf"], None, Ok("m-fp16.gguf"));
        check(&["a-BF16.gguf", "a.Q6_K.gguf"], None, Ok("a.Q6_K.gguf"));
        check(&["a.Q4_K_M.gguf", "a.Q2_K.gguf", "a.IQ2_XXS.gguf"], None, Ok("a.Q4_K_M.gguf"));
        check(&["a.gguf", "mmproj-a-f16.gguf"], None, Ok("a.gguf"));
        check(&["a-00001-of-00001.gguf"], None, Ok("a-00001-of-00001.gguf"));
        check(&["a-00002-of-00002.gguf", "a-00001-of-00002.gguf"], None, Ok("a-00001-of-00002.gguf"));
        check(&["a-Q8_0-00001-of-00002.gguf", "a-Q6_K.gguf"], None, Ok("a-Q8_0-00001-of-00002.gguf"));
        let parts = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"];
        check(&parts, Some("a-00002-of-00002.gguf"), Ok("a-00001-of-00002.gguf"));
        check(&["a.Q4_K_M.gguf", "a.Q8_0.gguf"], Some("a.Q4_K_M.gguf"), Ok("a.Q4_K_M.gguf"));
        check(&["x/a.Q4_K_M.gguf", "x/a.Q8_0.gguf"], Some("a.Q8_0.gguf"), Ok("x/a.Q8_0.gguf"));
        check(&["a.Q4_K_M.gguf", "a.Q8_0.gguf"], Some("q4_k_m"), Ok("a.Q4_K_M.gguf"));
    }

    #[test]
    fn says_why_not() {
        check(&[], None, Err("o/n has no GGUF file"));
        check(&["model.safetensors"], None, Err("safetensors"));
        check(&["a-00002-of-00002.gguf"], None, Err("no GGUF file"));
        check(&["a.IQ2_XXS.gguf", "a.IQ1_S.gguf"], None, Err("hf:o/n:a.IQ2_XXS.gguf"));
        check(&["a.IQ2_XXS.gguf", "a.IQ1_S.gguf"], None, Err("a.IQ1_S.gguf (1.5 MB)"));
        check(&["a.Q8_0.gguf", "b.Q8_0.gguf", "b.Q4_0.gguf"], None, Err("several"));
        check(&["a.gguf"], Some("b.gguf"), Err("no file \"b.gguf\". It has: a.gguf"));
    }
}
