//! Reads how many tests passed from what the test runners print.

use std::ops::Add;

/// What a runner counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that ran and passed.
    pub(crate) passed: usize,
    /// Tests that ran and did not.
    pub(crate) failed: usize,
    /// Tests that the runner left out.
    pub(crate) skipped: usize,
}

/// Whose output it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Runner {
    /// `cargo nextest run`
    Nextest,
    /// `cargo test`, one line for each test program
    Cargo,
    /// `pytest`
    Pytest,
    /// `node --test`
    Node,
    /// `vitest run`
    Vitest,
    /// A line `N passed, N failed`
    Plain,
}

/// The runner's own numbers; `None` when its closing line is not there.
pub(crate) fn read(runner: Runner, output: &str) -> Option<Counts> {
    let text = without_colours(output);
    let lines = text.lines().map(str::trim);
    match runner {
        Runner::Nextest => summary(lines.filter_map(|line| line.split_once("tests run:")).next_back()?.1),
        Runner::Cargo => {
            lines.filter(|line| line.starts_with("test result:")).filter_map(summary).reduce(Counts::add)
        }
        Runner::Pytest => lines.filter(|line| line.contains(" in ")).map(summary).rfind(Option::is_some)?,
        Runner::Node => node(lines),
        Runner::Vitest => summary(lines.filter_map(|line| line.strip_prefix("Tests ")).next_back()?),
        Runner::Plain => lines.map(summary).rfind(Option::is_some)?,
    }
}

/// The numbers before words such as `passed`; `None` when neither `passed` nor `failed` has one.
fn summary(line: &str) -> Option<Counts> {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|w| !w.is_empty()).collect();
    let mut counts = Counts::default();
    let mut has_numbers = false;
    for pair in words.windows(2) {
        let Ok(number) = pair[0].parse::<usize>() else { continue };
        match pair[1] {
            "passed" => counts.passed += number,
            // nextest counts tests that ran too long, or could not start, apart from the failed ones.
            "failed" | "error" | "errors" | "timed" | "exec" => counts.failed += number,
            "skipped" | "ignored" | "todo" => {
                counts.skipped += number;
                continue;
            }
            _ => continue,
        }
        has_numbers = true;
    }
    has_numbers.then_some(counts)
}

/// Node prints one line for each number: `# pass 3` or `ℹ pass 3`.
fn node<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Counts> {
    let mut counts = None;
    for line in lines {
        let Some(line) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ ")) else { continue };
        let Some((word, Ok(number))) = line.split_once(' ').map(|(word, n)| (word, n.trim().parse())) else {
            continue;
        };
        let counts = counts.get_or_insert_with(Counts::default);
        match word {
            "pass" => counts.passed = number,
            "fail" | "cancelled" => counts.failed += number,
            "skipped" | "todo" => counts.skipped += number,
            _ => {}
        }
    }
    counts
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// The text without terminal colour sequences (`ESC [ … letter`).
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            let _ = chars.by_ref().skip(1).find(|c| c.is_ascii_alphabetic());
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_runners_own() {
        let check = |runner: Runner, output: &str, expected: Option<(usize, usize, usize)>| {
            let expected = expected.map(|(passed, failed, skipped)| Counts { passed, failed, skipped });
            assert_eq!(read(runner, output), expected, "{runner:?}: {output}");
        };
        check(Runner::Nextest, "", None);
        check(
            Runner::Nextest,
            "     Summary [   0.123s] 12 tests run: 12 passed (1 slow), 3 skipped",
            Some((12, 0, 3)),
        );
        check(
            Runner::Nextest,
            "\u{1b}[32;1m     Summary\u{1b}[0m [ 1.2s] \u{1b}[1m9/12\u{1b}[0m tests run: \u{1b}[1m7\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, 1 failed, 1 timed out, 0 skipped",
            Some((7, 2, 0)),
        );
        check(
            Runner::Cargo,
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            Some((4, 2, 1)),
        );
        check(Runner::Pytest, "===== 1 failed, 12 passed, 2 skipped in 3.21s =====", Some((12, 1, 2)));
        check(Runner::Pytest, "..s\n12 passed in 0.52s", Some((12, 0, 0)));
        check(Runner::Pytest, "no tests ran in 0.01s", None);
        check(
            Runner::Node,
            "# tests 3\n# pass 2\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0",
            Some((2, 1, 0)),
        );
        check(Runner::Node, "ℹ tests 3\nℹ pass 3\nℹ fail 0\nℹ duration_ms 52.6", Some((3, 0, 0)));
        check(
            Runner::Vitest,
            " Test Files  1 failed | 2 passed (3)\n      Tests  1 failed | 11 passed | 2 skipped (14)\n",
            Some((11, 1, 2)),
        );
        check(Runner::Plain, "ok health\n7 passed, 1 failed\n", Some((7, 1, 0)));
    }
}
