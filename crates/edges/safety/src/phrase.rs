//! Phrases with alternatives: `{how to|how do i} make {a|} cake` is four phrases.

/// Most phrases that one with alternatives may stand for.
pub(crate) const MAX_EXPANSIONS: usize = 4096;
/// Longest phrase as written, in bytes.
pub(crate) const MAX_WRITTEN_BYTES: usize = 4096;

/// All phrases that a written one stands for.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn expand(written: &str) -> Result<Vec<String>, String> {
    if written.len() > MAX_WRITTEN_BYTES {
        return Err(format!("is longer than {MAX_WRITTEN_BYTES} bytes"));
    }
    let mut phrases = vec![String::new()];
    let mut rest = written;
    while !rest.is_empty() {
        let (text, choices, after) = next(rest)?;
        let count = choices.len().max(1) * phrases.len();
        if count > MAX_EXPANSIONS {
            return Err(format!("stands for more than {MAX_EXPANSIONS} phrases; divide it"));
        }
        let longer = |phrase: &String| {
            choices.iter().map(|choice| format!("{phrase}{text}{choice}")).collect::<Vec<_>>()
        };
        phrases = phrases.iter().flat_map(longer).collect();
        rest = after;
    }
    Ok(phrases)
}

/// The text before the next alternatives, these, and what comes after them.
fn next(rest: &str) -> Result<(&str, Vec<&str>, &str), String> {
    let Some(start) = rest.find(['{', '}']) else { return Ok((rest, vec![""], "")) };
    let (text, from) = rest.split_at(start);
    let inner = from.strip_prefix('{').ok_or("has a '}' without a '{'")?;
    let (choices, after) = inner.split_once('}').ok_or("has a '{' without a '}'")?;
    if choices.contains('{') {
        return Err("has alternatives inside alternatives; write them out".to_owned());
    }
    Ok((text, choices.split('|').collect(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives() {
        let check = |written: &str, want: &[&str]| assert_eq!(expand(written).unwrap(), want);
        check("", &[""]);
        check("one", &["one"]);
        check("{a|b} c", &["a c", "b c"]);
        check("x {a|b}{1|} y", &["x a1 y", "x a y", "x b1 y", "x b y"]);
        assert_eq!(expand(&"{a|b}".repeat(12)).unwrap().len(), 4096);
    }

    #[test]
    fn mistakes() {
        let check = |written: &str, want: &str| assert!(expand(written).unwrap_err().contains(want));
        check("{a|b", "without a '}'");
        check("a} b", "without a '{'");
        check("{a|{b}}", "inside alternatives");
        check(&"{a|b}".repeat(13), "more than 4096 phrases");
        check(&"a".repeat(4097), "longer than 4096 bytes");
    }
}
