//! Chat templates: messages to a prompt, as `transformers` renders them.
//!
//! - [`rewrite`] adapts the template's source to the engine, [`env`] sets the engine up: block trimming,
//!   Python's `str` and `repr` ([`python`]), string and dict methods ([`methods`]), the filters that
//!   differ ([`filters`], [`json`]), `raise_exception`, `strftime_now` ([`time`]).
//! - A rendering has a budget of work and of text, so that a hostile template ends with an error.
//! - [`guard`] keeps the caller's text from becoming control tokens.

mod args;
mod convert;
mod env;
mod error;
mod filters;
mod guard;
mod json;
mod methods;
mod python;
mod rewrite;
mod time;

pub use error::TemplateError;
pub use time::CivilTime;

use crate::Tokenizer;
use convert::{Place, for_each_string, to_value};
use env::RenderState;
use guard::{Guard, MarkerChoice, STRENGTHS, Strength};
use minijinja::{Environment, Value};
use motet_types::TokenId;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::io;

/// Published templates stay below 40 kB.
const MAX_SOURCE_BYTES: usize = 1 << 18;

/// Sixteen bytes for every token of a context of four million.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// Name of the one template in an environment.
const TEMPLATE: &str = "chat template";

/// What a template sees in place of `tools` or `documents` when a request has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AbsentValue {
    /// `None`, as `transformers` passes it.
    #[default]
    None,
    /// Nothing: the variable is undefined. A few older templates expect this.
    Undefined,
}

/// What a prompt is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderInput {
    /// The conversation: an array of objects with `role` and `content`, and whatever else the template reads.
    pub messages: Json,
    /// Tool definitions.
    pub tools: Option<Json>,
    /// Documents to answer from.
    pub documents: Option<Json>,
    /// Whether the prompt ends with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// What `strftime_now` prints.
    pub now: CivilTime,
    /// More variables, such as `enable_thinking`. The names of the fields above, `bos_token` and
    /// `eos_token` are refused.
    pub extra: Map<String, Json>,
}

/// A compiled chat template. Rendering does not change it; threads may share it.
pub struct ChatTemplate {
    env: Environment<'static>,
    bos: String,
    eos: String,
    absent: AbsentValue,
    /// Characters in the source that rule themselves out as markers.
    markers_in_source: String,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("bos", &self.bos).field("eos", &self.eos).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of these tokens, empty where there are none.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`] with the line, [`TemplateError::SourceTooLarge`].
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(TemplateError::SourceTooLarge { bytes: source.len(), limit: MAX_SOURCE_BYTES });
        }
        let mut env = env::environment().map_err(|e| TemplateError::syntax(&e))?;
        env.add_template_owned(TEMPLATE, rewrite::rewrite(source)).map_err(|e| TemplateError::syntax(&e))?;
        Ok(Self {
            env,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            absent: AbsentValue::None,
            markers_in_source: source.chars().filter(|c| !c.is_ascii()).collect(),
        })
    }

    /// Sets what the template sees when a request has no tools or no documents.
    #[must_use]
    pub fn with_absent(mut self, absent: AbsentValue) -> Self {
        self.absent = absent;
        self
    }

    /// The prompt as text, as `transformers` renders it.
    ///
    /// This text is for reading: once tokenized with control tokens parsed it lets whoever wrote a
    /// message write control tokens. [`prompt`](Self::prompt) does not.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] when the template refuses the messages, and the other render errors.
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        deep(|| self.render_plain(input))
    }

    /// The prompt as tokens: exactly those of the rendered text, except that a control token's text
    /// inside messages, tools, documents or extra variables stays text. No begin-of-text token is added
    /// to the one that the template writes.
    ///
    /// # Errors
    /// As [`render`](Self::render), and [`TemplateError::NoMarker`].
    pub fn prompt(&self, tokenizer: &Tokenizer, input: &RenderInput) -> Result<Vec<TokenId>, TemplateError> {
        deep(|| self.render_guarded(tokenizer, input))
    }

    fn render_plain(&self, input: &RenderInput) -> Result<String, TemplateError> {
        self.render_with(input, None, &|text, _| Cow::Borrowed(text))
    }

    fn render_guarded(
        &self,
        tokenizer: &Tokenizer,
        input: &RenderInput,
    ) -> Result<Vec<TokenId>, TemplateError> {
        let marker = self.marker(input)?;
        let mut plain = None;
        for strength in STRENGTHS {
            let guard = Guard::new(tokenizer.specials(), marker, strength);
            let marked = self.render_with(input, Some(marker), &|text, place| guard.mark(text, place));
            let is_undisturbed = !guard.has_marked() || {
                let plain = plain.get_or_insert_with(|| self.render_plain(input));
                matches!((&marked, plain), (Ok(marked), Ok(plain)) if strip_equals(marked, marker, plain))
            };
            if is_undisturbed || strength == Strength::Whole {
                return Ok(tokenizer.encode_marked(&marked?, marker));
            }
        }
        // The weakest strength returns whatever it gives.
        self.render_plain(input).map(|text| tokenizer.encode_marked(&text, marker))
    }

    fn marker(&self, input: &RenderInput) -> Result<char, TemplateError> {
        let mut choice = MarkerChoice::new();
        for text in [&self.markers_in_source, &self.bos, &self.eos] {
            choice.exclude(text);
        }
        let caller = [Some(&input.messages), input.tools.as_ref(), input.documents.as_ref()];
        for json in caller.into_iter().flatten().chain(input.extra.values()) {
            for_each_string(json, &mut |text| choice.exclude(text));
        }
        choice.choose().ok_or(TemplateError::NoMarker)
    }

    fn render_with<'a>(
        &'a self,
        input: &'a RenderInput,
        marker: Option<char>,
        map: &impl Fn(&'a str, Place) -> Cow<'a, str>,
    ) -> Result<String, TemplateError> {
        let variables = self.variables(input, map)?;
        let mut env = self.env.clone();
        RenderState { now: input.now, marker }.install(&mut env);
        let template = env.get_template(TEMPLATE).map_err(|e| TemplateError::render(&e))?;
        let mut out = Bounded { bytes: Vec::new(), is_full: false };
        let result = template.render_captured_to(variables, &mut out).map(drop);
        if out.is_full {
            return Err(TemplateError::Limit("too long a text"));
        }
        result.map_err(|e| TemplateError::render(&e))?;
        Ok(String::from_utf8_lossy(&out.bytes).into_owned())
    }

    /// The template's variables, every caller string passed through `map`.
    fn variables<'a>(
        &'a self,
        input: &'a RenderInput,
        map: &impl Fn(&'a str, Place) -> Cow<'a, str>,
    ) -> Result<Value, TemplateError> {
        let mut variables: Vec<(&str, Value)> = vec![
            ("messages", to_value(&input.messages, map)),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
            ("bos_token", Value::from(self.bos.as_str())),
            ("eos_token", Value::from(self.eos.as_str())),
        ];
        for (name, json) in [("tools", &input.tools), ("documents", &input.documents)] {
            match (json, self.absent) {
                (Some(json), _) => variables.push((name, to_value(json, map))),
                (None, AbsentValue::None) => variables.push((name, Value::from(()))),
                (None, AbsentValue::Undefined) => {}
            }
        }
        for (name, json) in &input.extra {
            let reserved =
                ["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"];
            if reserved.contains(&name.as_str()) {
                return Err(TemplateError::Reserved(name.clone()));
            }
            variables.push((name, to_value(json, map)));
        }
        Ok(Value::from_pairs(variables))
    }
}

/// Renders on a stack deep enough for anything a template can build.
fn deep<T: Send>(work: impl FnOnce() -> Result<T, TemplateError> + Send) -> Result<T, TemplateError> {
    env::on_deep_stack(work).map_err(|e| TemplateError::Thread(e.to_string()))?
}

/// Whether `marked` without markers is `plain`.
fn strip_equals(marked: &str, marker: char, plain: &str) -> bool {
    marked.chars().filter(|&c| c != marker).eq(plain.chars())
}

/// Takes a rendering and refuses what goes beyond [`MAX_OUTPUT_BYTES`].
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT_BYTES {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
