use serde::Serialize;

/// A served model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelObject {
    /// The name requests use.
    pub id: String,
    /// Always `model`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// Who serves it.
    pub owned_by: &'static str,
    /// Most tokens of prompt and reply together.
    pub max_model_len: u32,
}

impl ModelObject {
    /// The model `id` as this server offers it.
    pub fn new(id: impl Into<String>, created: u64, context_length: u32) -> Self {
        Self { id: id.into(), object: "model", created, owned_by: "motet", max_model_len: context_length }
    }
}

/// All served models, on one page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelList {
    /// Always `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelObject>,
}

impl ModelList {
    /// A list of `data`.
    pub fn new(data: Vec<ModelObject>) -> Self {
        Self { object: "list", data }
    }
}
