use std::io::{self, IsTerminal, Read, Write};

use crate::{
    cli::RunArgs,
    config::Config,
    failure::Failure,
    generate::{Ask, End, chat_prompt, generate, params},
    load::{Loaded, find_and_load},
    output::{harmless, say},
    signals::Interrupts,
};

/// Longest standard input: more text than any context holds.
const INPUT_BYTES: u64 = 16 << 20;

/// Answers one prompt on standard output.
pub(crate) async fn run(args: &RunArgs, config: &Config) -> Result<(), Failure> {
    let prompt = prompt(&args.prompt)?;
    let interrupts = Interrupts::listen();
    let loaded = find_and_load(config).await?;
    let tokens =
        if args.raw { raw_prompt(&loaded, &prompt)? } else { conversation(&loaded, config, &prompt)? };
    let ask =
        Ask { prompt: tokens, sampling: params(&config.sampling), max_tokens: config.sampling.max_tokens };
    let mut out = Out::new();
    let outcome = generate(&loaded, ask, |text| out.write(text), interrupts.stopped()).await;
    interrupts.reply_ended();
    out.end_line().map_err(Failure::output)?;
    match outcome?.end {
        End::Done => Ok(()),
        End::Stopped => Err(Failure::interrupted()),
        End::MaxTokens => {
            note(&format!("stopped after {} tokens; --max-tokens allows more", config.sampling.max_tokens));
            Ok(())
        }
        End::ContextFull => {
            note("stopped: the model's context is full");
            Ok(())
        }
    }
}

fn raw_prompt(loaded: &Loaded, prompt: &str) -> Result<Vec<u32>, Failure> {
    let tokens = loaded.tokenizer.encode_prompt(prompt);
    if tokens.is_empty() {
        return Err(Failure::usage("the prompt is empty"));
    }
    Ok(tokens)
}

fn conversation(loaded: &Loaded, config: &Config, prompt: &str) -> Result<Vec<u32>, Failure> {
    let message = |role: &str, content: &str| serde_json::json!({ "role": role, "content": content });
    let mut messages: Vec<_> = config.system.iter().map(|text| message("system", text)).collect();
    messages.push(message("user", prompt));
    chat_prompt(loaded, &messages.into())
}

/// The words of the command line, then piped standard input, with an empty line between.
fn prompt(words: &[String]) -> Result<String, Failure> {
    let mut parts = Vec::new();
    if !words.is_empty() {
        parts.push(words.join(" "));
    }
    if !io::stdin().is_terminal() {
        parts.push(piped()?);
    }
    parts.retain(|part| !part.trim().is_empty());
    if parts.is_empty() {
        return Err(Failure::usage("no prompt; write motet run \"your question\", or pipe text into it"));
    }
    Ok(parts.join("\n\n"))
}

fn piped() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(INPUT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::runtime(format!("standard input: {e}")))?;
    if bytes.len() as u64 > INPUT_BYTES {
        return Err(Failure::usage("standard input has more than 16 MiB, which no model holds"));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        Failure::usage(format!("standard input is not UTF-8 text (byte {})", e.utf8_error().valid_up_to()))
    })?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Only for a person: a script gets the answer alone.
fn note(text: &str) {
    if io::stderr().is_terminal() {
        say(&format!("({text})"));
    }
}

/// Standard output, piece by piece.
struct Out {
    is_terminal: bool,
    ends_line: bool,
}

impl Out {
    fn new() -> Self {
        Self { is_terminal: io::stdout().is_terminal(), ends_line: true }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.ends_line = text.ends_with('\n');
        let mut out = io::stdout().lock();
        if self.is_terminal {
            out.write_all(harmless(text).as_bytes())
        } else {
            out.write_all(text.as_bytes())
        }?;
        out.flush()
    }

    fn end_line(&mut self) -> io::Result<()> {
        if self.ends_line { Ok(()) } else { self.write("\n") }
    }
}
