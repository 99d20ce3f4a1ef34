//! A conversation in the terminal.

mod commands;
mod input;

use std::io::{self, IsTerminal, Write};

use commands::{Action, COMMANDS, parse};
use input::Input;
use motet_types::Backend;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::{
    config::Config,
    failure::Failure,
    generate::{Ask, End, Reply, chat_prompt, generate, params},
    load::{Loaded, find_and_load},
    output::{dim, harmless, print},
    signals::Interrupts,
};

/// Whether to read on.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Leave,
}

#[derive(Debug, Clone, Serialize)]
struct Message {
    role: &'static str,
    content: String,
}

/// Talks until the person leaves.
pub(crate) fn chat(runtime: &Runtime, config: &Config) -> Result<(), Failure> {
    let interrupts = runtime.block_on(async { Interrupts::listen() });
    let loaded = runtime.block_on(find_and_load(config))?;
    if let Err(why) = &loaded.template {
        return Err(Failure::usage(format!("{why}; motet run --raw continues plain text")));
    }
    let mut input = Input::open()?;
    let is_terminal = matches!(input, Input::Editor(_));
    let mut chat = Chat {
        runtime,
        config,
        loaded,
        interrupts,
        is_terminal,
        system: config.system.clone(),
        messages: Vec::new(),
    };
    chat.greet()?;
    while let Some(text) = input.next()? {
        if chat.act(parse(&text))? == Next::Leave {
            return Ok(());
        }
    }
    chat.tell("")
}

struct Chat<'a> {
    runtime: &'a Runtime,
    config: &'a Config,
    loaded: Loaded,
    interrupts: Interrupts,
    is_terminal: bool,
    system: Option<String>,
    /// User and assistant in turn.
    messages: Vec<Message>,
}

impl Chat<'_> {
    fn greet(&self) -> Result<(), Failure> {
        let room = self.loaded.engine.model().context_length;
        let line = format!("{} · room for {room} tokens · /help for commands, Ctrl-D leaves", self.loaded.id);
        self.tell(&line)
    }

    /// A faint line for a person; a pipe gets replies only.
    fn tell(&self, line: &str) -> Result<(), Failure> {
        if self.is_terminal { print(&format!("{}\n", dim(line, &io::stdout()))) } else { Ok(()) }
    }

    fn act(&mut self, action: Action) -> Result<Next, Failure> {
        match action {
            Action::Nothing => {}
            Action::Exit => return Ok(Next::Leave),
            Action::Help => {
                for (name, help) in COMMANDS {
                    self.tell(&format!("{name:8} {help}"))?;
                }
                self.tell("A \\ at the end of a line, or \"\"\" before and after, makes a message of several lines.")?;
            }
            Action::Clear => {
                self.messages.clear();
                self.tell("a new conversation")?;
            }
            Action::ShowSystem => {
                self.tell(self.system.as_deref().unwrap_or("no instructions; the model has its own"))?
            }
            Action::SetSystem(text) => {
                self.system = text;
                self.messages.clear();
                self.tell("a new conversation with these instructions")?;
            }
            Action::Retry => {
                if self.messages.last().is_some_and(|message| message.role == "assistant") {
                    self.messages.pop();
                }
                if self.messages.is_empty() {
                    self.tell("nothing to answer yet")?;
                } else {
                    self.answer()?;
                }
            }
            Action::Say(content) => {
                self.messages.push(Message { role: "user", content });
                self.answer()?;
            }
            Action::Unknown { name, similar } => {
                let hint = similar
                    .map_or_else(|| "/help lists them.".to_owned(), |known| format!("did you mean {known}?"));
                self.tell(&format!("{name} is no command; {hint} With a space before it, it is a message."))?;
            }
        }
        Ok(Next::Go)
    }

    /// Answers the last message. What can't be answered is taken back, so that the next message can be.
    fn answer(&mut self) -> Result<(), Failure> {
        let outcome = self.reply();
        print("\n")?;
        match outcome {
            Ok(reply) => {
                self.tell(&self.summary(&reply))?;
                if reply.text.trim().is_empty() {
                    self.messages.pop();
                } else {
                    self.messages.push(Message { role: "assistant", content: reply.text });
                }
                Ok(())
            }
            Err(failure) if self.is_terminal => {
                self.messages.pop();
                match failure.line() {
                    Some(line) => self.tell(&format!("{line} (/clear starts a new conversation)")),
                    None => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    fn reply(&self) -> Result<Reply, Failure> {
        let system = self.system.iter().map(|text| Message { role: "system", content: text.clone() });
        let messages: Vec<Message> = system.chain(self.messages.iter().cloned()).collect();
        let messages = serde_json::to_value(messages).map_err(Failure::runtime)?;
        let prompt = chat_prompt(&self.loaded, &messages)?;
        let sampling = params(&self.config.sampling);
        let ask = Ask { prompt, sampling, max_tokens: self.config.sampling.max_tokens };
        let is_terminal = io::stdout().is_terminal();
        let on_text = |text: &str| {
            let mut out = io::stdout().lock();
            let shown = if is_terminal { harmless(text) } else { text.to_owned() };
            out.write_all(shown.as_bytes()).and_then(|()| out.flush())
        };
        let outcome = self.runtime.block_on(generate(&self.loaded, ask, on_text, self.interrupts.stopped()));
        self.interrupts.reply_ended();
        outcome
    }

    fn summary(&self, reply: &Reply) -> String {
        let speed =
            reply.tokens_per_second().map_or_else(String::new, |speed| format!(" · {speed:.1} tokens/s"));
        let end = match reply.end {
            End::Done => String::new(),
            End::Stopped => " · stopped".to_owned(),
            End::MaxTokens => " · cut at --max-tokens".to_owned(),
            End::ContextFull => " · the context is full; /clear starts a new conversation".to_owned(),
        };
        format!("{} tokens{speed}{end}", reply.usage.output)
    }
}
