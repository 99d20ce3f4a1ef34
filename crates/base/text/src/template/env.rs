//! The template engine set up to behave as `transformers` sets up Jinja2.

use super::python::py_str;
use super::time::CivilTime;
use super::{filters, methods};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Work one rendering may do: one unit per instruction and per 64 bytes of text made. It takes well under
/// a second to burn and allows 192 MiB of text over all variables.
const FUEL: u64 = 3_000_000;

/// Stack of the thread that renders. A template can nest one list per eight units of fuel, and dropping
/// a value takes up to 650 bytes of stack per level in an unoptimised build. The memory is reserved, and
/// used only by a template that nests so deep.
const STACK_BYTES: usize = FUEL as usize / 8 * 700;

/// Macros and includes may nest this deep; the bound keeps a hostile template off the end of the stack.
const MAX_RECURSION: usize = 100;

/// The variable that carries [`RenderState`]; its name is no identifier, so no template can touch it.
const RENDER_STATE: &str = " motet";

/// What filters need to know about the rendering they run in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RenderState {
    /// The time that `strftime_now` prints.
    pub(super) now: CivilTime,
    /// A character that is no text and must come out as it went in.
    pub(super) marker: Option<char>,
}

impl Object for RenderState {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

impl RenderState {
    /// The state of the rendering that is going on.
    pub(super) fn of(state: &State) -> Self {
        let value = state.lookup(RENDER_STATE);
        value.as_ref().and_then(Value::downcast_object_ref::<Self>).copied().unwrap_or_default()
    }

    /// Makes the state visible to the filters of `env`.
    pub(super) fn install(self, env: &mut Environment<'static>) {
        // A global, because the body of a macro sees no variable that it does not name.
        env.add_global(RENDER_STATE, Value::from_object(self));
    }
}

/// Marks errors that the template itself raised.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// Runs `work` where a hostile template cannot reach the end of the stack.
///
/// # Errors
/// The system refuses the thread.
pub(super) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("chat-template".to_owned()).stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, work)?;
        thread.join().map_err(|_| std::io::Error::other("the rendering thread panicked"))
    })
}

/// An environment without templates.
pub(super) fn environment() -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(format_value);
    env.set_unknown_method_callback(methods::call);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(MAX_RECURSION);
    env.set_debug(false);
    filters::register(&mut env);
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("sequence", is_sequence);
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", |state: &State, format: &str| {
        RenderState::of(state).now.strftime(format)
    });
    env.add_function("cycler", |items: minijinja::value::Rest<Value>| {
        Value::from_object(Cycler { items: items.to_vec(), at: AtomicUsize::new(0) })
    });
    env.add_function("joiner", |separator: Option<String>| {
        Value::from_object(Joiner {
            separator: separator.unwrap_or_else(|| ", ".to_owned()),
            used: AtomicUsize::new(0),
        })
    });
    env.add_function("lipsum", || -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "lipsum() is not available in chat templates"))
    });
    Ok(env)
}

/// Writes a value as `str()` does, escaping it inside `{% autoescape true %}`.
fn format_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let write =
        |out: &mut Output, text: &str| out.write_str(text).map_err(|_| Error::from(ErrorKind::WriteFailure));
    if let (Some(text), AutoEscape::None) = (value.as_str(), state.auto_escape()) {
        return write(out, text);
    }
    let text = py_str(value, &RenderState::of(state))?;
    match state.auto_escape() {
        AutoEscape::Html if !value.is_safe() => write(out, &filters::escape_html(&text)),
        _ => write(out, &text),
    }
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// Has a length and items: strings, lists, tuples, mappings.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// `cycler('a', 'b')`: hands out its items in turn.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Cycler {
    fn current(&self) -> Value {
        let count = self.items.len().max(1);
        self.items.get(self.at.load(Ordering::Relaxed) % count).cloned().unwrap_or_default()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.current())
    }

    fn call_method(self: &Arc<Self>, _: &mut State, method: &str, _: &[Value]) -> Result<Value, Error> {
        match method {
            "next" => {
                let current = self.current();
                self.at.fetch_add(1, Ordering::Relaxed);
                Ok(current)
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// `joiner(', ')`: nothing at the first call, the separator from then on.
#[derive(Debug)]
struct Joiner {
    separator: String,
    used: AtomicUsize,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State, _: &[Value]) -> Result<Value, Error> {
        let is_first = self.used.swap(1, Ordering::Relaxed) == 0;
        Ok(Value::from(if is_first { "" } else { self.separator.as_str() }))
    }
}
