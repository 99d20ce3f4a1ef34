use std::sync::Arc;

use crate::category::Verdict;

/// Says what a text is. Whoever asks decides what follows from it.
///
/// A check takes time and memory linear in the text, never fails, and gives the same text the same verdict;
/// white space around the text changes nothing.
pub trait Check: Send + Sync {
    /// The verdict on a text.
    fn check(&self, text: &str) -> Verdict;
}

/// Several checks as one: the highest score of each category.
#[derive(Clone, Default)]
pub struct All(pub Vec<Arc<dyn Check>>);

impl Check for All {
    fn check(&self, text: &str) -> Verdict {
        let mut verdict = Verdict::default();
        self.0.iter().for_each(|check| verdict.merge(&check.check(text)));
        verdict
    }
}
