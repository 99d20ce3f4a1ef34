//! What can be seen of a request before its model is known, without a tokenizer and without a model.

use std::fmt;

/// Bytes of text for one token, at most: what vocabularies make of English is above four, of code and most other
/// scripts about three. An estimate that is too long picks a larger context, one that is too short makes an error.
const BYTES_PER_TOKEN: u64 = 3;
/// Bytes of a question that are searched for signs: the longest one takes a fraction of a millisecond.
const SEARCHED: usize = 16 << 10;

/// Estimated tokens of `bytes` of text.
pub fn tokens_of(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// What is known of a request before its model is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Tokens of the whole prompt, estimated.
    pub prompt_tokens: u64,
    /// Tokens of the latest question in it, estimated.
    pub question_tokens: u64,
    /// What the latest question looks like.
    pub signs: Signs,
    /// Questions in the conversation.
    pub turns: u32,
    /// Most tokens of the reply, where the request says.
    pub max_tokens: Option<u32>,
    /// Whether tools were offered or have been called.
    pub has_tools: bool,
}

/// Signs of hard work in a text, found by what it looks like. They may be wrong: all that hangs on them is which model
/// answers someone who left the choice to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signs {
    /// Source code, or a request for it.
    pub has_code: bool,
    /// Formulas, or words of mathematics.
    pub has_math: bool,
    /// Words that ask for several steps of thought.
    pub has_steps: bool,
}

/// Signs of code: texts that prose does not have, and requests for it.
const CODE: &[&str] = &[
    "```",
    "#include",
    "();",
    "){",
    ") {",
    "=> ",
    "fn ",
    "def ",
    "class ",
    "import ",
    "select * ",
    "</",
    "stack trace",
    "traceback",
    "regex",
    "unit test",
    "write a function",
    "write a program",
    "write code",
    "source code",
    "python",
    "javascript",
    "typescript",
    "rust ",
    "c++",
    "sql",
    "segfault",
    "compile",
];
/// Signs of mathematics.
const MATH: &[&str] = &[
    "\\frac",
    "\\sum",
    "\\int",
    "\\begin{",
    "$$",
    "\\(",
    "∑",
    "∫",
    "√",
    "≤",
    "≥",
    "theorem",
    "prove ",
    "proof",
    "equation",
    "integral",
    "derivative",
    "probability",
    "matrix",
    "polynomial",
    "solve for",
    "calculate",
    "compute ",
    "how many ",
];
/// Signs of several steps.
const STEPS: &[&str] = &[
    "step by step",
    "step-by-step",
    "think carefully",
    "reason ",
    "reasoning",
    "analyse",
    "analyze",
    "compare",
    "trade-off",
    "tradeoff",
    "pros and cons",
    "explain why",
    "design a",
    "architecture",
    "strategy",
    "plan for",
    "make a plan",
    "debug",
    "find the bug",
    "root cause",
    "evaluate",
    "critique",
];
/// Lines that begin a numbered item, from which a list is a request of several parts.
const ITEMS: usize = 3;

impl Signs {
    /// The signs in `text`. Cases don't matter; only its first 16 KiB are searched.
    pub fn of(text: &str) -> Self {
        let text = text.get(..text.floor_char_boundary(SEARCHED)).unwrap_or(text).to_lowercase();
        let has_any = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
        Self {
            has_code: has_any(CODE),
            has_math: has_any(MATH),
            has_steps: has_any(STEPS) || text.lines().filter(|line| is_item(line)).count() >= ITEMS,
        }
    }
}

/// Whether a line begins like `1.` or `2)`.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < line.len() && (rest.starts_with(". ") || rest.starts_with(") "))
}

/// Tokens of a question from which it is long.
const LONG_QUESTION: u64 = 400;
/// Questions of a conversation from which it is long.
const MANY_TURNS: u32 = 8;
/// Tokens of a reply from which it is long.
const LONG_REPLY: u32 = 2000;
/// Points from which a request is [`Hard`](Level::Hard).
const HARD: u32 = 2;

/// How much work a request looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing speaks for work: a short plain question.
    Easy,
    /// One weak sign.
    Medium,
    /// A strong sign, or two weak ones.
    Hard,
}

/// What was found, and what follows from it. Its text is for headers: `easy`, `medium:tools`, `hard:code,long`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// How much work it looks like.
    pub level: Level,
    facts: Facts,
}

impl Facts {
    /// How much work the request looks like: two points for code, mathematics, several steps or a long question, one for
    /// many turns, a long reply or tools. No point is easy, one is medium, more is hard.
    pub fn effort(&self) -> Effort {
        let points: u32 = self.found().map(|(_, points)| points).sum();
        let level = match points {
            0 => Level::Easy,
            1..HARD => Level::Medium,
            _ => Level::Hard,
        };
        Effort { level, facts: *self }
    }

    /// Names and points of what speaks for work.
    fn found(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        let Signs { has_code, has_math, has_steps } = self.signs;
        let all = [
            (has_code, "code", 2),
            (has_math, "math", 2),
            (has_steps, "steps", 2),
            (self.question_tokens >= LONG_QUESTION, "long", 2),
            (self.turns >= MANY_TURNS, "turns", 1),
            (self.max_tokens.is_some_and(|most| most >= LONG_REPLY), "long-reply", 1),
            (self.has_tools, "tools", 1),
        ];
        all.into_iter().filter(|(is_there, ..)| *is_there).map(|(_, name, points)| (name, points))
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Easy => "easy",
            Level::Medium => "medium",
            Level::Hard => "hard",
        })?;
        let mut separator = ":";
        for (name, _) in self.facts.found() {
            write!(f, "{separator}{name}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts() {
        let check = |question: &str, want: &str| {
            let facts = Facts {
                question_tokens: tokens_of(question.len()),
                signs: Signs::of(question),
                turns: 1,
                ..Facts::default()
            };
            assert_eq!(facts.effort().to_string(), want, "{question}");
        };
        check("", "easy");
        check("Hi!", "easy");
        check("What is the capital of France?", "easy");
        check("Translate 'good morning' into Spanish.", "easy");
        check("Why does ```let x = 1;``` not work?", "hard:code");
        check("Write a function that reverses a list", "hard:code");
        check("Prove that √2 is irrational", "hard:math");
        check("Compare the two offers step by step", "hard:steps");
        check("Do this:\n1. read\n2. think\n3. answer", "hard:steps");
        check("Born in 1990. Likes:\n1. tea", "easy");
        check(&"word ".repeat(300), "hard:long");
        check(&format!("{}```", "é".repeat(SEARCHED)), "hard:long");
    }

    #[test]
    fn weak_signs_add_up() {
        let check = |facts: Facts, want: &str| assert_eq!(facts.effort().to_string(), want);
        check(Facts { turns: 8, ..Facts::default() }, "medium:turns");
        check(Facts { has_tools: true, ..Facts::default() }, "medium:tools");
        check(Facts { max_tokens: Some(1999), turns: 7, ..Facts::default() }, "easy");
        check(Facts { max_tokens: Some(2000), turns: 8, ..Facts::default() }, "hard:turns,long-reply");
    }
}
