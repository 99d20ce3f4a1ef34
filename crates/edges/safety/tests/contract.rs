//! What holds for every check.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, LazyLock};

use motet_safety::{All, Category, Check, PromptLeak, Rules, Secrets, Verdict};
use proptest::prelude::*;

const KEY: &str = "sk-proj-a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6";
const PROMPT: &str =
    "You are Ada, an assistant of the town library, and you never speak of prices to anybody.";

/// A check by name, with a text that it flags.
type Named = (&'static str, Arc<dyn Check>, &'static str);

static CHECKS: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let rules: Arc<dyn Check> = Arc::new(Rules::builtin().unwrap());
    let secrets: Arc<dyn Check> = Arc::new(Secrets::new().unwrap());
    let leak: Arc<dyn Check> = Arc::new(PromptLeak::new(PROMPT));
    let all = Arc::new(All(vec![Arc::clone(&rules), Arc::clone(&secrets), Arc::clone(&leak)]));
    vec![
        ("rules", rules, "I want to kill myself"),
        ("secrets", secrets, KEY),
        ("leak", leak, PROMPT),
        ("all", all, KEY),
        ("none", Arc::new(All::default()), ""),
    ]
});

fn check(text: &str) {
    for (name, check, flagged) in CHECKS.iter() {
        let verdict = check.check(text);
        for category in Category::ALL {
            assert!((0.0..=1.0).contains(&verdict.score(category)), "{name}: {category:?} of {text:?}");
        }
        assert_eq!(check.check(text), verdict, "{name}: {text:?} again");
        for space in [" ", "\n\n", "\t \r\n", "\u{a0}", "\u{3000}"] {
            assert_eq!(
                check.check(&format!("{space}{text}{space}")),
                verdict,
                "{name}: {text:?} in {space:?}"
            );
        }
        // What was found is found in a longer text too.
        let more = check.check(&format!("{flagged}\n\n{text}\n\n{flagged}"));
        let found = check.check(flagged);
        for category in Category::ALL {
            assert!(more.score(category) >= found.score(category), "{name}: {category:?} beside {text:?}");
        }
    }
}

#[test]
fn nothing_is_found_in_nothing() {
    for (name, check, flagged) in CHECKS.iter() {
        assert_eq!(check.check(""), Verdict::default(), "{name}");
        assert_eq!(check.check(flagged).flagged().next().is_none(), flagged.is_empty(), "{name}");
    }
    for text in ["", " ", "\u{200b}", "\u{301}", "a", "\u{10ffff}", "'", "{", "-----BEGIN ", "sk-", "k i l l"]
    {
        check(text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_text(text in ".{0,200}") {
        check(&text);
    }

    #[test]
    fn texts_with_what_is_looked_for(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![KEY, PROMPT, "I want to k1ll myself", "k i l l ", "-----BEGIN RSA PRIVATE KEY-----", "\u{200b}", "é", " "]),
            0..6,
        ),
    ) {
        check(&pieces.concat());
    }
}
