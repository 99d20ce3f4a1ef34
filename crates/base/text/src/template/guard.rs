//! Keeps the caller's text from becoming control tokens.
//!
//! A prompt is template text and caller text in one string, and once it is one string nothing tells
//! `<|im_end|>` typed by a user from the one the template wrote. So before rendering, a marker (a
//! character that occurs nowhere in the input) is put *inside* every control token's text in the
//! caller's strings. After rendering, whatever is cut by a marker is not matched as a control token; the
//! marker is dropped from the plain text that remains, which is then exactly what the caller wrote.
//!
//! Three strengths, because a marker can disturb a template that looks at its input:
//!
//! - [`Strength::Whole`] marks complete texts of control tokens. Always applied.
//! - [`Strength::Parts`] also marks what could become one together with text beside it: a beginning of a
//!   control token's text (two characters or more, or at the end of a string) and a string that starts with
//!   the end of one. That covers `<|im_` before template text, two strings that the template joins, and
//!   templates that cut something out of the middle.
//! - [`Strength::Pieces`] also marks strings that lie wholly inside a control token's text (a name put
//!   between `<|` and `|>`).
//!
//! The strongest one wins whose rendering, markers dropped, equals the rendering without markers: then
//! the template did not look at them. Roles with well-known names are left alone, since templates spell
//! control tokens with them. Keys of objects get no marker in front, since templates look values up by
//! key.

use super::convert::Place;
use crate::tokenizer::Specials;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;

/// Roles that are names of the protocol rather than text.
const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function", "ipython", "model"];

/// How much is marked; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    Whole,
    Parts,
    Pieces,
}

/// Strongest first.
pub(super) const STRENGTHS: [Strength; 3] = [Strength::Pieces, Strength::Parts, Strength::Whole];

/// Puts markers into caller strings.
pub(super) struct Guard<'a> {
    specials: &'a Specials,
    marker: char,
    strength: Strength,
    has_marked: Cell<bool>,
}

impl<'a> Guard<'a> {
    pub(super) fn new(specials: &'a Specials, marker: char, strength: Strength) -> Self {
        Self { specials, marker, strength, has_marked: Cell::new(false) }
    }

    /// Whether any string got a marker.
    pub(super) fn has_marked(&self) -> bool {
        self.has_marked.get()
    }

    /// `text` with markers.
    pub(super) fn mark<'t>(&self, text: &'t str, place: Place) -> Cow<'t, str> {
        if place == Place::Role && ROLES.contains(&text) {
            return Cow::Borrowed(text);
        }
        let mut out = String::new();
        let mut copied = 0;
        if place != Place::Key && self.continues(text) {
            out.push(self.marker);
        }
        for (at, c) in text.char_indices() {
            // Behind the first character: in front of it, the whole token's text would still be there.
            if self.is_start(&text[at..], c) {
                let end = at + c.len_utf8();
                out.push_str(&text[copied..end]);
                out.push(self.marker);
                copied = end;
            }
        }
        if out.is_empty() {
            return Cow::Borrowed(text);
        }
        self.has_marked.set(true);
        out.push_str(&text[copied..]);
        Cow::Owned(out)
    }

    /// Whether `rest`, which begins with `first`, begins with what has to be cut.
    fn is_start(&self, rest: &str, first: char) -> bool {
        let walk = self.specials.control_walk(rest);
        if walk.matched.is_some() {
            return true;
        }
        let is_long = walk.depth > first.len_utf8();
        let reaches_end = walk.depth > 0 && walk.depth == rest.len();
        self.strength >= Strength::Parts && (is_long || reaches_end)
    }

    fn continues(&self, text: &str) -> bool {
        match self.strength {
            Strength::Whole => false,
            Strength::Parts => self.specials.ends_control(text),
            Strength::Pieces => self.specials.ends_control(text) || self.specials.is_inside_control(text),
        }
    }
}

/// A character that no caller string and no template text holds: a noncharacter, else one of the last
/// private-use plane. `None` if every one of them is taken.
pub(super) struct MarkerChoice {
    taken: HashSet<char>,
}

impl MarkerChoice {
    pub(super) fn new() -> Self {
        Self { taken: HashSet::new() }
    }

    fn candidates() -> impl Iterator<Item = char> {
        ('\u{fdd0}'..='\u{fdef}').chain('\u{100000}'..='\u{10fffd}')
    }

    /// Rules out every candidate in `text`.
    pub(super) fn exclude(&mut self, text: &str) {
        let is_candidate = |c: &char| matches!(c, '\u{fdd0}'..='\u{fdef}' | '\u{100000}'..='\u{10fffd}');
        self.taken.extend(text.chars().filter(is_candidate));
    }

    /// The first candidate that is left.
    pub(super) fn choose(&self) -> Option<char> {
        Self::candidates().find(|c| !self.taken.contains(c))
    }
}
