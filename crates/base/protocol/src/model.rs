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
    /// What only this server's clients ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub motet: Option<ModelDetails>,
}

/// What helps to choose a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ModelDetails {
    /// What it is for; each is a name for it, too.
    pub roles: Vec<&'static str>,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// Most tokens of prompt and reply together.
    pub context_length: u32,
    /// What it is good for, for people; may be empty.
    pub description: String,
    /// Whether it is the one to take where nothing speaks for another.
    pub is_default: bool,
}

impl ModelObject {
    /// The model `id` as this server offers it.
    pub fn new(id: impl Into<String>, created: u64, context_length: u32) -> Self {
        Self {
            id: id.into(),
            object: "model",
            created,
            owned_by: "motet",
            max_model_len: context_length,
            motet: None,
        }
    }

    /// The same with what helps to choose it.
    #[must_use]
    pub fn with_details(self, details: ModelDetails) -> Self {
        Self { motet: Some(details), ..self }
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
