use std::fmt::Write;

use motet_quota::{ReservationId, Scope};

/// The names of what a script touches: by level its balances and its concurrent replies, then the reservation.
pub(super) struct Keys([String; 7]);

impl Keys {
    pub(super) fn new(scope: &Scope, id: Option<ReservationId>) -> Self {
        let root = format!("motet:quota:{{{}}}", escaped(&scope.tenant));
        let (user, model) = (escaped(&scope.user), escaped(&scope.model));
        let levels =
            [format!("{root}:all"), format!("{root}:user:{user}"), format!("{root}:model:{user}:{model}")];
        let [tenant_live, user_live, model_live] = levels.each_ref().map(|level| format!("{level}:live"));
        let [tenant, user, model] = levels;
        let held = id.map_or_else(String::new, |id| id.to_string());
        Self([tenant, tenant_live, user, user_live, model, model_live, format!("{root}:held:{held}")])
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Without the characters that have a meaning in a key. Never empty: an empty hash tag is none.
fn escaped(name: &str) -> String {
    if name.is_empty() {
        return "%".to_owned();
    }
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'@' => text.push(byte.into()),
            // Writing to a string cannot fail.
            _ => _ = write!(text, "%{byte:02x}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_reach_into_each_others_keys() {
        let scopes = [
            Scope::new("a", "b", "c"),
            Scope::new("a", "b:c", ""),
            Scope::new("a:user", "b", "c"),
            Scope::new("a}", "{b}", "c"),
            Scope::new("a%7d", "b", "live"),
            Scope::new("", "b", "c"),
            Scope::new("%", "b", "c"),
        ];
        let mut all = std::collections::BTreeSet::new();
        for scope in &scopes {
            let keys = Keys::new(scope, Some(ReservationId(1)));
            let model = keys.all().nth(4).unwrap().to_owned();
            assert!(all.insert(model.clone()), "{model} has two owners");
            for key in keys.all() {
                assert_eq!(key.matches(['{', '}']).count(), 2, "{key}");
                assert!(!key.contains("{}"), "{key}");
            }
        }
    }
}
