//! What is sent: conversations with prompts of known length, a function of the seed alone.
//!
//! Invariants:
//! - the shape (lengths, which prompts share what) depends on [`Seeds::shape`] only, so that all rows and
//!   targets get the same one;
//! - distinct text depends on [`Seeds::text`] too, so that one row's prompts are not in the cache for the next.

use serde::Deserialize;

use crate::{
    LoadError,
    rng::{Rng, mix},
    trace::{HASH_BLOCK_TOKENS, TraceRow},
    words::{self, TokenScale},
};

/// What kind of prompts are sent.
#[derive(Debug, Clone)]
pub enum Workload {
    /// Prompts of random words, each with its own.
    Random(Lengths),
    /// The same first tokens for all, then a tail of random words.
    SharedPrefix {
        /// Tokens of the prefix.
        prefix: u32,
        /// What follows it.
        tail: Lengths,
    },
    /// Lengths and shared blocks of a trace.
    Trace {
        /// The recorded requests.
        rows: Vec<TraceRow>,
        /// Lengths are divided by it.
        divisor: f64,
        /// Longer prompts and replies are cut to these.
        caps: Caps,
    },
    /// Given prompts, from the first on and again when there are more requests.
    Given(Vec<GivenPrompt>),
}

/// Tokens of prompts and replies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Prompt tokens.
    pub input: u32,
    /// Reply tokens.
    pub output: u32,
    /// Lengths are uniform within this share around them: 0 for all the same, below 1.
    pub spread: f64,
}

/// Most tokens of a request.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Of its prompt.
    pub input: u32,
    /// Of its reply.
    pub output: u32,
}

/// One line of a file of prompts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GivenPrompt {
    /// Text or token ids.
    pub prompt: GivenText,
    /// Reply tokens, where the line says so.
    #[serde(default)]
    pub output_tokens: Option<u32>,
}

/// Text or token ids.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum GivenText {
    /// Text.
    Text(String),
    /// Token ids of the server's vocabulary.
    Tokens(Vec<u32>),
}

/// Reads JSON lines with `prompt` (text or token ids) and, optionally, `output_tokens`.
///
/// # Errors
/// [`LoadError::File`] with the line that can't be read.
pub fn read_prompts(text: &str, file: &str, output: u32) -> Result<Vec<GivenPrompt>, LoadError> {
    let failed = |why: String| LoadError::File { file: file.to_owned(), why };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts = lines.map(|(index, line)| {
        let mut prompt: GivenPrompt =
            serde_json::from_str(line).map_err(|error| failed(format!("line {}: {error}", index + 1)))?;
        prompt.output_tokens = Some(prompt.output_tokens.unwrap_or(output).max(1));
        Ok(prompt)
    });
    let prompts = prompts.collect::<Result<Vec<_>, LoadError>>()?;
    if prompts.is_empty() { Err(failed("no prompts in it".to_owned())) } else { Ok(prompts) }
}

/// A run of random words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seed: u64,
    pub(crate) tokens: u32,
}

/// What a turn adds to its conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Prompt {
    Words(Vec<Segment>),
    Given(GivenText),
}

/// A prompt and the tokens asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) prompt: Prompt,
    pub(crate) output: u32,
}

/// Turns that follow each other; each sends what came before and its own words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conversation {
    pub(crate) turns: Vec<Turn>,
}

/// What makes conversations alike or different.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeds {
    /// Of lengths and of shared text.
    pub(crate) shape: u64,
    /// Of distinct text.
    pub(crate) text: u64,
}

impl Prompt {
    /// Its words, where the server's tokenizer is as `scale` says. Boundaries between segments are rounded at their
    /// position from the prompt's beginning, so prompts that share their first segments share those words;
    /// the overhead comes off the last segment.
    pub(crate) fn text(&self, scale: &TokenScale) -> String {
        let segments = match self {
            Self::Words(segments) => segments,
            Self::Given(GivenText::Text(text)) => return text.clone(),
            Self::Given(GivenText::Tokens(_)) => return String::new(),
        };
        let mut text = String::new();
        let (mut tokens, mut placed) = (0u32, 0usize);
        for (index, segment) in segments.iter().enumerate() {
            tokens = tokens.saturating_add(segment.tokens);
            let is_last = index + 1 == segments.len();
            let overhead = if is_last { scale.overhead.round() as u32 } else { 0 };
            let least = usize::from(is_last && placed == 0);
            let count = scale.words(tokens.saturating_sub(overhead)).saturating_sub(placed).max(least);
            words::append(&mut text, segment.seed, count);
            placed += count;
        }
        text
    }
}

impl Workload {
    /// At least `requests` requests in conversations of `turns` turns.
    pub(crate) fn plan(&self, requests: usize, turns: usize, seeds: Seeds) -> Vec<Conversation> {
        let count = requests.div_ceil(turns.max(1)).max(1);
        (0..count).map(|index| self.conversation(index, turns.max(1), seeds)).collect()
    }

    fn conversation(&self, index: usize, turns: usize, seeds: Seeds) -> Conversation {
        let mut rng = Rng::new(&[seeds.shape, index as u64]);
        let turns = (0..turns).map(|turn| {
            let text = mix(&[seeds.shape, seeds.text, index as u64, turn as u64]);
            self.turn((index, turn), text, (&mut rng, seeds))
        });
        Conversation { turns: turns.collect() }
    }

    fn turn(&self, (index, turn): (usize, usize), text: u64, (rng, seeds): (&mut Rng, Seeds)) -> Turn {
        match self {
            Self::Random(lengths) => lengths.turn(Vec::new(), text, rng),
            Self::SharedPrefix { prefix, tail } => {
                let first = Segment { seed: shared_seed(seeds), tokens: *prefix };
                tail.turn(if turn == 0 { vec![first] } else { Vec::new() }, text, rng)
            }
            Self::Trace { rows, divisor, caps } => {
                let row = &rows[index % rows.len().max(1)];
                trace_turn(row, *divisor, *caps, (text, seeds))
            }
            Self::Given(prompts) => {
                let given = &prompts[index % prompts.len().max(1)];
                Turn { prompt: Prompt::Given(given.prompt.clone()), output: given.output_tokens.unwrap_or(1) }
            }
        }
    }

    /// The request that puts what all prompts share into a target's cache before it is measured.
    pub(crate) fn warm_prefix(&self, seeds: Seeds) -> Option<Conversation> {
        let Self::SharedPrefix { prefix, .. } = self else { return None };
        let first = Segment { seed: shared_seed(seeds), tokens: *prefix };
        let tail = Segment { seed: mix(&[seeds.shape, 1]), tokens: 16 };
        Some(Conversation { turns: vec![Turn { prompt: Prompt::Words(vec![first, tail]), output: 1 }] })
    }

    /// Arrival times of a trace in seconds.
    pub(crate) fn times(&self) -> Option<Vec<f64>> {
        let Self::Trace { rows, .. } = self else { return None };
        Some(rows.iter().map(|row| row.at_s).collect())
    }

    /// As a person writes it.
    pub(crate) fn text(&self, turns: usize) -> String {
        let text = match self {
            Self::Random(lengths) => format!("random prompts, {}", lengths.text()),
            Self::SharedPrefix { prefix, tail } => {
                format!("a shared prefix of {prefix} tokens and {}", tail.text())
            }
            Self::Trace { rows, divisor, .. } => {
                format!("trace of {} requests, lengths ÷ {divisor}", rows.len())
            }
            Self::Given(prompts) => format!("{} given prompts", prompts.len()),
        };
        if turns > 1 { format!("{text}; {turns} turns") } else { text }
    }
}

fn shared_seed(seeds: Seeds) -> u64 {
    mix(&[seeds.shape, 0x7072_6566_6978])
}

impl Lengths {
    fn turn(&self, mut segments: Vec<Segment>, seed: u64, rng: &mut Rng) -> Turn {
        let mut draw = |tokens: u32| {
            let factor = 1.0 + self.spread * (2.0 * rng.unit() - 1.0);
            ((f64::from(tokens) * factor).round() as u32).max(1)
        };
        segments.push(Segment { seed, tokens: draw(self.input) });
        Turn { prompt: Prompt::Words(segments), output: draw(self.output) }
    }

    fn text(&self) -> String {
        let spread =
            if self.spread > 0.0 { format!(" ± {:.0} %", self.spread * 100.0) } else { String::new() };
        format!("{} in, {} out{spread}", self.input, self.output)
    }
}

/// A trace's request with its lengths divided. A hash id becomes a segment that depends on the id, so
/// prompts that begin with the same ids begin with the same words; without ids all words are distinct.
fn trace_turn(row: &TraceRow, divisor: f64, caps: Caps, (text, seeds): (u64, Seeds)) -> Turn {
    let scaled = |tokens: f64, cap: u32| ((tokens / divisor).round() as u32).clamp(1, cap.max(1));
    let input = scaled(f64::from(row.input), caps.input);
    let boundary = |block: usize| {
        let tokens = (block as f64 * f64::from(HASH_BLOCK_TOKENS) / divisor).floor();
        (tokens as u32).min(input)
    };
    let mut segments = Vec::new();
    for (index, id) in row.blocks.iter().enumerate() {
        let tokens = boundary(index + 1) - boundary(index);
        segments.push(Segment { seed: mix(&[seeds.shape, seeds.text, 0x0062_6c6f_636b, *id]), tokens });
    }
    let covered = boundary(row.blocks.len());
    if covered < input || segments.is_empty() {
        segments.push(Segment { seed: text, tokens: input - covered });
    }
    Turn { prompt: Prompt::Words(segments), output: scaled(f64::from(row.output), caps.output) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEEDS: Seeds = Seeds { shape: 1, text: 2 };
    const ONE: TokenScale = TokenScale { per_word: 1.0, overhead: 0.0 };

    fn lengths(input: u32, spread: f64) -> Lengths {
        Lengths { input, output: 8, spread }
    }

    fn first_text(conversation: &Conversation) -> String {
        conversation.turns[0].prompt.text(&ONE)
    }

    #[test]
    fn random_prompts_differ_and_repeat() {
        let workload = Workload::Random(lengths(40, 0.0));
        let (a, b) = (workload.plan(6, 1, SEEDS), workload.plan(6, 1, SEEDS));
        assert_eq!(a, b);
        let mut texts: Vec<String> = a.iter().map(first_text).collect();
        assert!(texts.iter().all(|text| text.split(' ').count() == 40));
        texts.extend(workload.plan(6, 1, Seeds { text: 3, ..SEEDS }).iter().map(first_text));
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 12);
    }

    #[test]
    fn a_prefix_is_shared_by_all_rows() {
        let workload = Workload::SharedPrefix { prefix: 30, tail: lengths(10, 0.0) };
        let plan = workload.plan(3, 2, SEEDS);
        assert_eq!((plan.len(), plan[0].turns.len()), (2, 2));
        let warm = first_text(&workload.warm_prefix(SEEDS).unwrap());
        let prefix: Vec<&str> = warm.split(' ').take(30).collect();
        for seeds in [SEEDS, Seeds { text: 9, ..SEEDS }] {
            let text = first_text(&workload.plan(1, 1, seeds)[0]);
            assert_eq!(text.split(' ').take(30).collect::<Vec<_>>(), prefix);
            assert_eq!(text.split(' ').count(), 40);
        }
        assert_eq!(plan[0].turns[1].prompt.text(&ONE).split(' ').count(), 10);
    }

    #[test]
    fn trace_blocks_become_shared_beginnings() {
        let row = |input, blocks: &[u64]| TraceRow { at_s: 0.0, input, output: 80, blocks: blocks.to_vec() };
        let rows = vec![row(1100, &[1, 2, 3]), row(1200, &[1, 2, 4]), row(1100, &[])];
        let workload = Workload::Trace { rows, divisor: 8.0, caps: Caps { input: 1000, output: 5 } };
        let plan = workload.plan(3, 1, SEEDS);
        let texts: Vec<String> = plan.iter().map(first_text).collect();
        let words: Vec<Vec<&str>> = texts.iter().map(|text| text.split(' ').collect()).collect();
        assert_eq!(words.iter().map(Vec::len).collect::<Vec<_>>(), [138, 150, 138]);
        assert_eq!(words[0][..128], words[1][..128]);
        assert_ne!(words[0][128..], words[1][128..138]);
        assert_ne!(words[0][..64], words[2][..64]);
        assert_eq!(plan[0].turns[0].output, 5);
    }

    #[test]
    fn prompts_are_read() {
        let text = "{\"prompt\": \"Hello\"}\n\n{\"prompt\": [1, 2], \"output_tokens\": 3}\n";
        let prompts = read_prompts(text, "p.jsonl", 16).unwrap();
        assert_eq!(
            prompts[0],
            GivenPrompt { prompt: GivenText::Text("Hello".into()), output_tokens: Some(16) }
        );
        assert_eq!(prompts[1].prompt, GivenText::Tokens(vec![1, 2]));
        let error = read_prompts("{\"prompt\": 1}", "p.jsonl", 16).unwrap_err().to_string();
        assert!(error.contains("p.jsonl: line 1"), "{error}");
    }

    proptest! {
        /// Whatever the tokenizer, the words take the tokens asked for, to the nearest word.
        #[test]
        fn lengths_follow_the_scale(
            prefix in 0u32..200, tail in 1u32..200, per_word in 0.7f64..3.0, overhead in 0.0f64..40.0,
        ) {
            let workload = Workload::SharedPrefix { prefix, tail: lengths(tail, 0.0) };
            let scale = TokenScale { per_word, overhead };
            let text = workload.plan(1, 1, SEEDS)[0].turns[0].prompt.text(&scale);
            let tokens = overhead + per_word * text.split(' ').count() as f64;
            let wanted = f64::from(prefix + tail);
            // A tail shorter than the overhead is left out: the shared part stays whole.
            let least = overhead + f64::from(prefix) + per_word;
            prop_assert!((tokens - wanted).abs() <= per_word + 1.0 || tokens <= least + 1.0, "{tokens} {wanted}");
        }

        #[test]
        fn spreads_stay_inside(spread in 0.0f64..0.99, seed in any::<u64>()) {
            let seeds = Seeds { shape: seed, text: 0 };
            for conversation in Workload::Random(lengths(100, spread)).plan(20, 1, seeds) {
                let Prompt::Words(segments) = &conversation.turns[0].prompt else { unreachable!() };
                let tokens = f64::from(segments[0].tokens);
                prop_assert!((tokens - 100.0).abs() <= 100.0 * spread + 1.0);
            }
        }
    }
}
