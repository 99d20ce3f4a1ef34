use serde_json::{Map, Value, json};

use crate::error::{RequestError, shorten};
use crate::fields::Fields;

/// Most messages in a conversation. The longest context holds fewer turns than this, and a template
/// walks all of them.
pub const MAX_MESSAGES: usize = 4096;

/// Between the text parts of one message, as other servers do for templates that take a string.
const PART_SEPARATOR: &str = "\n";

#[derive(Clone, Copy, PartialEq)]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    fn read(fields: &Fields<'_>) -> Result<Self, RequestError> {
        Ok(match fields.required_string("role")? {
            "system" | "developer" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" | "function" => Self::Tool,
            other => {
                let rule = format!(
                    "must be one of system, developer, user, assistant, tool or function, not \"{}\"",
                    shorten(other)
                );
                return Err(RequestError::bad_value(fields.path("role"), rule));
            }
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// Reads `messages` into what chat templates take.
pub(crate) fn conversation(fields: &Fields<'_>) -> Result<Value, RequestError> {
    let list = fields.array("messages")?.ok_or_else(|| RequestError::missing("messages"))?;
    if list.is_empty() {
        return Err(RequestError::bad_value("messages", "must hold at least one message"));
    }
    if list.len() > MAX_MESSAGES {
        let rule = format!("holds {} messages; at most {MAX_MESSAGES} are allowed", list.len());
        return Err(RequestError::bad_value("messages", rule));
    }
    let read = |(i, value)| message(&Fields::of(value, format!("messages[{i}]"))?);
    list.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn message(fields: &Fields<'_>) -> Result<Value, RequestError> {
    let role = Role::read(fields)?;
    let tool_calls = if role == Role::Assistant { tool_calls(fields)? } else { None };
    if fields.get("audio").is_some() {
        return Err(RequestError::unsupported(fields.path("audio"), "is not supported: send text"));
    }
    let text = content(fields, role)?;
    let mut out = Map::new();
    out.insert("role".into(), role.as_str().into());
    match text.or(refusal(fields, role)?) {
        Some(text) => out.insert("content".into(), text.into()),
        None if tool_calls.is_some() => out.insert("content".into(), Value::Null),
        None => return Err(RequestError::missing(fields.path("content"))),
    };
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.string(name)? {
            out.insert(name.into(), text.into());
        }
    }
    if let Some(calls) = tool_calls {
        out.insert("tool_calls".into(), Value::Array(calls));
    }
    Ok(Value::Object(out))
}

/// The text of `content`; `None` when it is null or absent.
fn content(fields: &Fields<'_>, role: Role) -> Result<Option<String>, RequestError> {
    let path = fields.path("content");
    match fields.get("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) if parts.is_empty() => {
            Err(RequestError::bad_value(path, "must hold at least one part; send \"\" for an empty text"))
        }
        Some(Value::Array(parts)) => {
            let read = |(i, value)| part(&Fields::of(value, format!("{path}[{i}]"))?, role);
            let texts = parts.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
            Ok(Some(texts.join(PART_SEPARATOR)))
        }
        Some(other) => Err(RequestError::wrong_type(path, "a string or an array of text parts", other)),
    }
}

fn part<'a>(fields: &Fields<'a>, role: Role) -> Result<&'a str, RequestError> {
    match fields.required_string("type")? {
        "text" => fields.required_string("text"),
        "refusal" if role == Role::Assistant => fields.required_string("refusal"),
        other => {
            let rule = format!("\"{}\" is not supported: this model reads text parts only", shorten(other));
            Err(RequestError::unsupported(fields.path("type"), &rule))
        }
    }
}

/// What an assistant said instead of content.
fn refusal(fields: &Fields<'_>, role: Role) -> Result<Option<String>, RequestError> {
    if role != Role::Assistant {
        return Ok(None);
    }
    Ok(fields.string("refusal")?.map(str::to_owned))
}

/// Calls that an assistant made earlier; an empty list is none. Arguments stay the string they are,
/// even where a cut reply left broken JSON: it's history, and refusing it would end the conversation.
fn tool_calls(fields: &Fields<'_>) -> Result<Option<Vec<Value>>, RequestError> {
    let Some(list) = fields.array("tool_calls")?.filter(|list| !list.is_empty()) else { return Ok(None) };
    let path = fields.path("tool_calls");
    let read = |(i, value)| {
        let call = Fields::of(value, format!("{path}[{i}]"))?;
        let function =
            call.object("function")?.ok_or_else(|| RequestError::missing(call.path("function")))?;
        Ok(json!({
            "id": call.required_string("id")?,
            "type": "function",
            "function": {
                "name": function.required_string("name")?,
                "arguments": function.required_string("arguments")?,
            },
        }))
    };
    list.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>().map(Some)
}
