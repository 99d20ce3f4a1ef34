use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::RequestError;
use crate::fields::Fields;

/// Most texts of one moderation request. Each gets a result of a kilobyte.
pub const MAX_MODERATION_INPUTS: usize = 128;
/// Most bytes of all texts of one moderation request together.
pub const MAX_MODERATION_BYTES: usize = 256 << 10;

/// The categories of a moderation, as the wire spells and orders them.
pub const MODERATION_CATEGORIES: [&str; 13] = [
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/intent",
    "self-harm/instructions",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
];

/// The body of `POST /v1/moderations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModerationRequest {
    /// The model asked for, if any; whether it is served only its host knows.
    pub model: Option<String>,
    /// 1 to [`MAX_MODERATION_INPUTS`] texts, each of which gets a result.
    pub inputs: Vec<String>,
}

impl ModerationRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// Names the first parameter that is missing, wrong or unsupported.
    pub fn from_body(body: &Map<String, Value>) -> Result<Self, RequestError> {
        let fields = Fields::root(body);
        let model = fields.string("model")?.map(str::to_owned);
        let input = fields.get("input").ok_or_else(|| RequestError::missing("input"))?;
        let inputs = inputs(input)?;
        let bytes = inputs.iter().map(String::len).sum::<usize>();
        if bytes > MAX_MODERATION_BYTES {
            let rule = format!(
                "has {bytes} bytes of text; at most {MAX_MODERATION_BYTES} are allowed in one request: split it"
            );
            return Err(RequestError::bad_value("input", rule));
        }
        Ok(Self { model, inputs })
    }
}

fn inputs(input: &Value) -> Result<Vec<String>, RequestError> {
    const WANTED: &str = "a string, an array of strings or an array of text parts";
    let list = match input {
        Value::String(text) => return Ok(vec![text.clone()]),
        Value::Array(list) => list,
        other => return Err(RequestError::wrong_type("input", WANTED, other)),
    };
    if list.len() > MAX_MODERATION_INPUTS {
        let rule =
            format!("has {} entries; at most {MAX_MODERATION_INPUTS} are allowed in one request", list.len());
        return Err(RequestError::bad_value("input", rule));
    }
    match list.first() {
        None => Err(RequestError::bad_value("input", "must not be empty")),
        Some(Value::String(_)) => list.iter().enumerate().map(|(i, entry)| text(entry, i)).collect(),
        // Parts are one message together.
        Some(Value::Object(_)) => {
            let parts = list.iter().enumerate().map(|(i, entry)| part(entry, i));
            Ok(vec![parts.collect::<Result<Vec<_>, _>>()?.join("\n")])
        }
        Some(other) => Err(RequestError::wrong_type("input[0]", "a string or a text part", other)),
    }
}

fn text(entry: &Value, index: usize) -> Result<String, RequestError> {
    let text = entry.as_str().map(str::to_owned);
    text.ok_or_else(|| {
        RequestError::wrong_type(format!("input[{index}]"), "a string, as the first is", entry)
    })
}

fn part(entry: &Value, index: usize) -> Result<&str, RequestError> {
    let fields = Fields::of(entry, format!("input[{index}]"))?;
    match fields.required_string("type")? {
        "text" => fields.required_string("text"),
        "image_url" => {
            let what = "is an image, which this server can't check; send text parts only";
            Err(RequestError::unsupported(fields.path("type"), what))
        }
        _ => Err(RequestError::bad_value(fields.path("type"), "must be 'text'")),
    }
}

/// The reply to a [`ModerationRequest`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moderation {
    /// Names this reply.
    pub id: String,
    /// What answered.
    pub model: String,
    /// One for each input, in order.
    pub results: Vec<ModerationResult>,
}

/// What was found in one input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModerationResult {
    /// Whether any category is flagged.
    pub flagged: bool,
    categories: Map<String, Value>,
    category_scores: Map<String, Value>,
    category_applied_input_types: Map<String, Value>,
}

impl ModerationResult {
    /// The result with a score from 0 to 1 for each of [`MODERATION_CATEGORIES`]; those of at least `flag_at` are
    /// flagged.
    pub fn new(scores: &[f64; MODERATION_CATEGORIES.len()], flag_at: f64) -> Self {
        let by_name = |value: &dyn Fn(f64) -> Value| {
            let named = |(name, score): (&&str, &f64)| ((*name).to_owned(), value(*score));
            MODERATION_CATEGORIES.iter().zip(scores).map(named).collect()
        };
        Self {
            flagged: scores.iter().any(|score| *score >= flag_at),
            categories: by_name(&|score| (score >= flag_at).into()),
            category_scores: by_name(&|score| score.into()),
            category_applied_input_types: by_name(&|_| vec!["text"].into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Value) -> Result<ModerationRequest, RequestError> {
        ModerationRequest::from_body(body.as_object().unwrap())
    }

    #[test]
    fn inputs_in_all_shapes() {
        let check = |input: Value, want: &[&str]| {
            assert_eq!(read(&json!({"input": input, "user": "u"})).unwrap().inputs, want);
        };
        check(json!("hi"), &["hi"]);
        check(json!(""), &[""]);
        check(json!(["a", "b"]), &["a", "b"]);
        check(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), &["a\nb"]);
        check(json!(vec!["a"; MAX_MODERATION_INPUTS]), &["a"; MAX_MODERATION_INPUTS]);
        check(json!("x".repeat(MAX_MODERATION_BYTES)), &["x".repeat(MAX_MODERATION_BYTES).as_str()]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |body: Value, param: &str, code: &str, want: &str| {
            let error = read(&body).unwrap_err();
            assert_eq!(
                (error.param.as_deref(), error.problem.code()),
                (Some(param), code),
                "{}",
                error.message
            );
            assert!(error.message.contains(want), "{}", error.message);
        };
        let input = |input: Value| json!({ "input": input });
        let image = json!([{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]);
        check(json!({}), "input", "missing_required_parameter", "is required");
        check(input(json!(null)), "input", "missing_required_parameter", "is required");
        check(json!({"input": "a", "model": 1}), "model", "invalid_type", "a string");
        check(input(json!(5)), "input", "invalid_type", "an array of strings");
        check(input(json!([])), "input", "invalid_value", "must not be empty");
        check(input(json!([5])), "input[0]", "invalid_type", "a string or a text part");
        check(input(json!(["a", 5])), "input[1]", "invalid_type", "as the first is");
        check(input(image), "input[0].type", "unsupported_parameter", "send text parts only");
        check(input(json!([{"type": "audio"}])), "input[0].type", "invalid_value", "must be 'text'");
        check(input(json!([{"text": "a"}])), "input[0].type", "missing_required_parameter", "is required");
        check(input(json!([{"type": "text"}])), "input[0].text", "missing_required_parameter", "is required");
        check(input(json!([{"type": "text", "text": "a"}, "b"])), "input[1]", "invalid_type", "an object");
        let many = MAX_MODERATION_INPUTS + 1;
        check(input(json!(vec!["a"; many])), "input", "invalid_value", "has 129 entries; at most 128");
        let halves = vec!["x".repeat(MAX_MODERATION_BYTES / 2 + 1); 2];
        check(input(json!(halves)), "input", "invalid_value", "has 262146 bytes of text; at most 262144");
    }

    #[test]
    fn replies() {
        let mut scores = [0.0; 13];
        (scores[4], scores[5]) = (0.9, 0.4);
        let results = vec![ModerationResult::new(&scores, 0.5), ModerationResult::new(&[0.0; 13], 0.5)];
        insta::assert_json_snapshot!(Moderation { id: "modr-1".to_owned(), model: "m".to_owned(), results });
    }
}
