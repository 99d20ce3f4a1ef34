use motet_protocol::MODERATION_CATEGORIES;

/// From this score on a category is flagged.
pub const FLAG_AT: f64 = 0.5;

/// What a text can be flagged for. The first thirteen are those of the moderation API, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Insults and bullying.
    Harassment,
    /// With a threat.
    HarassmentThreatening,
    /// Against a group of people.
    Hate,
    /// With a threat.
    HateThreatening,
    /// How to break the law.
    Illicit,
    /// How to make or get a weapon.
    IllicitViolent,
    /// About harming oneself.
    SelfHarm,
    /// By somebody who means to.
    SelfHarmIntent,
    /// How to.
    SelfHarmInstructions,
    /// Meant to arouse.
    Sexual,
    /// With somebody under 18.
    SexualMinors,
    /// Death and injury.
    Violence,
    /// In detail.
    ViolenceGraphic,
    /// Keys and passwords; not of the API.
    Secrets,
    /// The operator's instructions to the model; not of the API.
    PromptLeak,
}

impl Category {
    /// All of them, in order.
    pub const ALL: [Self; 15] = [
        Self::Harassment,
        Self::HarassmentThreatening,
        Self::Hate,
        Self::HateThreatening,
        Self::Illicit,
        Self::IllicitViolent,
        Self::SelfHarm,
        Self::SelfHarmIntent,
        Self::SelfHarmInstructions,
        Self::Sexual,
        Self::SexualMinors,
        Self::Violence,
        Self::ViolenceGraphic,
        Self::Secrets,
        Self::PromptLeak,
    ];

    /// As lists and the wire spell it, such as `self-harm/intent`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secrets => "secrets",
            Self::PromptLeak => "prompt-leak",
            other => MODERATION_CATEGORIES[other as usize],
        }
    }

    /// The category of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name() == name)
    }

    /// What a text of this category is in any case as well.
    fn parent(self) -> Option<Self> {
        match self {
            Self::HarassmentThreatening => Some(Self::Harassment),
            Self::HateThreatening => Some(Self::Hate),
            Self::IllicitViolent => Some(Self::Illicit),
            Self::SelfHarmIntent | Self::SelfHarmInstructions => Some(Self::SelfHarm),
            Self::SexualMinors => Some(Self::Sexual),
            Self::ViolenceGraphic => Some(Self::Violence),
            _ => None,
        }
    }
}

/// What a check thinks of a text: a score from 0 to 1 for each category. 0 is "nothing was found", not "harmless".
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Verdict {
    scores: [f64; Category::ALL.len()],
}

impl Verdict {
    /// A verdict of one score. A subcategory's counts for its category too.
    pub fn of(category: Category, score: f64) -> Self {
        let mut verdict = Self::default();
        verdict.raise(category, score);
        verdict
    }

    /// Takes the score where it is higher; what is no number counts as 0.
    pub fn raise(&mut self, category: Category, score: f64) {
        // `max` takes the number where the other is none.
        let score = score.clamp(0.0, 1.0).max(0.0);
        for category in [Some(category), category.parent()].into_iter().flatten() {
            let known = &mut self.scores[category as usize];
            *known = known.max(score);
        }
    }

    /// The higher score of both, for each category.
    pub fn merge(&mut self, other: &Self) {
        self.scores.iter_mut().zip(other.scores).for_each(|(score, other)| *score = score.max(other));
    }

    /// The score of a category.
    pub fn score(&self, category: Category) -> f64 {
        self.scores[category as usize]
    }

    /// Whether the category is flagged.
    pub fn is_flagged(&self, category: Category) -> bool {
        self.score(category) >= FLAG_AT
    }

    /// The categories that are flagged, in order.
    pub fn flagged(&self) -> impl Iterator<Item = Category> + '_ {
        Category::ALL.into_iter().filter(|category| self.is_flagged(*category))
    }

    /// Whether no policy may let the text through.
    pub fn must_block(&self) -> bool {
        self.is_flagged(Category::SexualMinors)
    }

    /// The scores of the moderation API's categories.
    pub(crate) fn moderation(&self) -> [f64; MODERATION_CATEGORIES.len()] {
        std::array::from_fn(|index| self.scores[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_have_the_places_and_names_of_the_wire() {
        for (index, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(category as usize, index);
            assert_eq!(Category::from_name(category.name()), Some(category));
        }
        assert!(
            Category::ALL.iter().zip(MODERATION_CATEGORIES).all(|(category, name)| category.name() == name)
        );
        assert_eq!(Category::from_name("violins"), None);
    }

    #[test]
    fn scores_are_numbers_from_0_to_1_and_only_rise() {
        let mut verdict = Verdict::of(Category::SexualMinors, 7.0);
        verdict.raise(Category::Sexual, 0.2);
        verdict.raise(Category::Violence, f64::NAN);
        verdict.raise(Category::Hate, -1.0);
        verdict.merge(&Verdict::of(Category::IllicitViolent, 0.4));
        let scores =
            |categories: &[Category]| categories.iter().map(|c| verdict.score(*c)).collect::<Vec<_>>();
        assert_eq!(scores(&[Category::SexualMinors, Category::Sexual, Category::Illicit]), [1.0, 1.0, 0.4]);
        assert_eq!(scores(&[Category::Violence, Category::Hate]), [0.0, 0.0]);
        assert_eq!(verdict.flagged().collect::<Vec<_>>(), [Category::Sexual, Category::SexualMinors]);
        assert!(verdict.must_block() && !Verdict::of(Category::Sexual, 1.0).must_block());
    }
}
