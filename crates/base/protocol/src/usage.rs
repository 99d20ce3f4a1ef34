use serde::Serialize;

/// What a request cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of the prompts; a prompt with several choices counts once.
    pub prompt_tokens: u32,
    /// Generated tokens of all choices, end-of-turn tokens included.
    pub completion_tokens: u32,
    /// Both together.
    pub total_tokens: u32,
    /// Of the prompt tokens.
    pub prompt_tokens_details: PromptTokensDetails,
    /// Of the generated tokens.
    pub completion_tokens_details: CompletionTokensDetails,
}

/// Where prompt tokens came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    /// Found in the prefix cache.
    pub cached_tokens: u32,
}

/// What generated tokens were for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CompletionTokensDetails {
    /// Spent on reasoning.
    pub reasoning_tokens: u32,
    /// Predicted by the client and kept.
    pub accepted_prediction_tokens: u32,
    /// Predicted by the client and dropped.
    pub rejected_prediction_tokens: u32,
}

impl Usage {
    /// A usage of `prompt` tokens, `cached` of them from the cache, and `completion` generated ones.
    pub fn new(prompt: u32, cached: u32, completion: u32) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt.saturating_add(completion),
            prompt_tokens_details: PromptTokensDetails { cached_tokens: cached },
            completion_tokens_details: CompletionTokensDetails::default(),
        }
    }
}
