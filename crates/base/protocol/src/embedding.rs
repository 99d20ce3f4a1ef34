use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::completion::{Prompt, texts_or_tokens};
use crate::error::RequestError;
use crate::fields::Fields;
use crate::unsupported::IGNORED;

/// Most inputs of one request, as in the OpenAI API.
pub const MAX_EMBEDDING_INPUTS: usize = 2048;
/// Most tokens of all inputs of a request together, as in the OpenAI API.
pub const MAX_EMBEDDING_TOKENS: u64 = 300_000;

/// Parameters that are read here.
const KNOWN: &[&str] = &["model", "input", "encoding_format", "dimensions"];

/// The body of `POST /v1/embeddings`.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingRequest {
    /// The model asked for.
    pub model: String,
    /// 1 to [`MAX_EMBEDDING_INPUTS`]; texts are not empty.
    pub inputs: Vec<Prompt>,
    /// How vectors are written.
    pub format: EncodingFormat,
    /// How many numbers a vector shall have; whether the model can do that only its host knows.
    pub dimensions: Option<u32>,
    /// Names of parameters that this API does not know, in the order sent. They are ignored.
    pub unknown: Vec<String>,
}

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodingFormat {
    /// As an array of numbers.
    Float,
    /// As the base64 of little-endian 32-bit floats, in a third of the bytes.
    Base64,
}

impl EmbeddingRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// Names the first parameter that is missing, wrong or unsupported.
    pub fn from_body(body: &Map<String, Value>) -> Result<Self, RequestError> {
        let fields = Fields::root(body);
        let model = fields.required_string("model")?.to_owned();
        let is_known = |name: &&str| KNOWN.contains(name) || IGNORED.contains(name);
        Ok(Self {
            model,
            inputs: inputs(&fields)?,
            format: format(&fields)?,
            dimensions: fields.count("dimensions", 1)?,
            unknown: fields.names().filter(|name| !is_known(name)).map(str::to_owned).collect(),
        })
    }
}

fn inputs(fields: &Fields<'_>) -> Result<Vec<Prompt>, RequestError> {
    let inputs = texts_or_tokens(fields, "input")?;
    if inputs.len() > MAX_EMBEDDING_INPUTS {
        let rule = format!(
            "has {} entries; at most {MAX_EMBEDDING_INPUTS} are allowed in one request",
            inputs.len()
        );
        return Err(RequestError::bad_value("input", rule));
    }
    let is_empty = |input: &Prompt| matches!(input, Prompt::Text(text) if text.is_empty());
    match inputs.iter().position(is_empty) {
        None => Ok(inputs),
        Some(_) if inputs.len() == 1 && fields.string("input").is_ok() => {
            Err(RequestError::bad_value("input", "must not be an empty text"))
        }
        Some(i) => Err(RequestError::bad_value(format!("input[{i}]"), "must not be an empty text")),
    }
}

fn format(fields: &Fields<'_>) -> Result<EncodingFormat, RequestError> {
    match fields.string("encoding_format")? {
        None | Some("float") => Ok(EncodingFormat::Float),
        Some("base64") => Ok(EncodingFormat::Base64),
        Some(_) => Err(RequestError::bad_value("encoding_format", "must be 'float' or 'base64'")),
    }
}

/// The reply to an [`EmbeddingRequest`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmbeddingList {
    /// Always `list`.
    pub object: &'static str,
    /// One for each input, in order.
    pub data: Vec<Embedding>,
    /// The model that made them.
    pub model: String,
    /// What it cost.
    pub usage: EmbeddingUsage,
}

/// The vector of one input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Embedding {
    /// Always `embedding`.
    pub object: &'static str,
    /// Which input.
    pub index: usize,
    /// Its vector.
    pub embedding: Vector,
}

/// A vector and how it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    /// Its numbers.
    pub values: Vec<f32>,
    /// How they are written.
    pub format: EncodingFormat,
}

/// What a request for embeddings cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EmbeddingUsage {
    /// Tokens of all inputs.
    pub prompt_tokens: u64,
    /// The same: nothing is generated.
    pub total_tokens: u64,
}

impl EmbeddingList {
    /// The reply with `vectors`, which cost `tokens`.
    pub fn new(model: &str, vectors: Vec<Vec<f32>>, format: EncodingFormat, tokens: u64) -> Self {
        let embedding =
            |(index, values)| Embedding { object: "embedding", index, embedding: Vector { values, format } };
        Self {
            object: "list",
            data: vectors.into_iter().enumerate().map(embedding).collect(),
            model: model.to_owned(),
            usage: EmbeddingUsage { prompt_tokens: tokens, total_tokens: tokens },
        }
    }
}

impl Serialize for Vector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.format {
            EncodingFormat::Float => self.values.serialize(serializer),
            EncodingFormat::Base64 => {
                let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
                serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(extra: Value) -> Result<EmbeddingRequest, RequestError> {
        let mut body = json!({"model": "m", "input": "hi"});
        extra.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        EmbeddingRequest::from_body(body.as_object().unwrap())
    }

    #[test]
    fn inputs_in_all_shapes() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        let tokens = |path: &str, ids: &[u32]| Prompt::Tokens { path: path.to_owned(), ids: ids.to_vec() };
        let check =
            |input: Value, want: Vec<Prompt>| assert_eq!(read(json!({"input": input})).unwrap().inputs, want);
        check(json!("hi"), vec![text("hi")]);
        check(json!(["a", "b"]), vec![text("a"), text("b")]);
        check(json!([1, 2]), vec![tokens("input", &[1, 2])]);
        check(json!([[1], [2, 3.0]]), vec![tokens("input[0]", &[1]), tokens("input[1]", &[2, 3])]);
        check(json!(["a", [7]]), vec![text("a"), tokens("input[1]", &[7])]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |extra: Value, param: &str, want: &str| {
            let error = read(extra).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{}", error.message);
            assert!(error.message.contains(want), "{}", error.message);
        };
        check(json!({"input": null}), "input", "is required");
        check(json!({"model": null}), "model", "is required");
        check(json!({"input": ""}), "input", "must not be an empty text");
        check(json!({"input": ["a", ""]}), "input[1]", "must not be an empty text");
        check(json!({"input": []}), "input", "must not be empty");
        check(json!({"input": [[]]}), "input[0]", "at least one token id");
        check(json!({"input": [1, "a"]}), "input[1]", "an integer");
        check(json!({"input": [-1]}), "input[0]", "between 0 and");
        check(json!({"input": 5}), "input", "a string, an array of strings");
        check(json!({"input": vec!["a"; 2049]}), "input", "has 2049 entries; at most 2048");
        check(json!({"encoding_format": "hex"}), "encoding_format", "'float' or 'base64'");
        check(json!({"dimensions": 0}), "dimensions", "between 1 and");
    }

    #[test]
    fn the_rest_of_a_request() {
        let request =
            read(json!({"encoding_format": "base64", "dimensions": 8, "user": "u", "inptu": 1})).unwrap();
        assert_eq!((request.format, request.dimensions), (EncodingFormat::Base64, Some(8)));
        assert_eq!(request.unknown, ["inptu"]);
    }

    #[test]
    fn replies() {
        let list = |format| EmbeddingList::new("m", vec![vec![1.0, -0.1], vec![0.5, 2.5e-8]], format, 7);
        let json = serde_json::to_string(&list(EncodingFormat::Float)).unwrap();
        assert_eq!(
            json,
            r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0,-0.1]},{"object":"embedding","index":1,"embedding":[0.5,2.5e-8]}],"model":"m","usage":{"prompt_tokens":7,"total_tokens":7}}"#
        );
        let json = serde_json::to_value(list(EncodingFormat::Base64)).unwrap();
        assert_eq!(json["data"][0]["embedding"], "AACAP83MzL0=");
    }
}
