//! Rewrites a template's source where Jinja2 and minijinja read it differently.
//!
//! The source is cut into tokens and put together again, with these changes and no others:
//!
//! - `{% generation %}` … `{% endgeneration %}` (a mark for training data, added by `transformers`)
//!   become a `with` block, which like the original is a scope and prints its body.
//! - `for x in E` loops over `(E)|motet_iter`, so that `None` is an error as in Python.
//! - `'literal' % E` becomes a filter call, since minijinja's `%` takes numbers only.
//! - `a ~ b` writes `b` as Python's `str` does.
//! - A unary plus is dropped.
//! - Line ends are `\n`.
//!
//! Line numbers stay as they are. A source that cannot be cut up (an unclosed string, say) is left alone:
//! the engine's parser then says what is wrong with it.

/// Filter that refuses `None`.
pub(super) const ITER: &str = "motet_iter";
/// Filter that formats its value with the argument.
pub(super) const PERCENT: &str = "motet_percent";
/// Filter that makes a string.
pub(super) const STR: &str = "motet_str";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Outside tags: text, comments, raw blocks. White space inside tags.
    Verbatim,
    /// `{{`, `{%` with their white space mark.
    Open,
    /// `}}`, `%}` likewise.
    Close,
    Name,
    Str,
    Number,
    Operator,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

/// Rewrites `source`; see the module.
pub(super) fn rewrite(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let Some(tokens) = tokenize(&source) else { return source };
    let mut edits = Edits { before: vec![None; tokens.len() + 1], replace: vec![None; tokens.len()] };
    for at in 0..tokens.len() {
        match (tokens[at].kind, tokens[at].text) {
            (Kind::Operator, "%") => edit_percent(&tokens, at, &mut edits),
            (Kind::Operator, "~") => edit_concat(&tokens, at, &mut edits),
            (Kind::Operator, "+") if is_prefix(&tokens, at) => edits.replace[at] = Some(" ".to_owned()),
            _ => {}
        }
    }
    // A loop's parenthesis closes behind whatever was put behind the last operand.
    for at in 0..tokens.len() {
        if tokens[at].kind == Kind::Open {
            edit_tag(&tokens, at, &mut edits);
        }
    }
    edits.apply(&tokens)
}

/// Changes to a list of tokens.
struct Edits {
    /// Text to put in front of a token; one more than there are tokens.
    before: Vec<Option<String>>,
    replace: Vec<Option<String>>,
}

impl Edits {
    /// Inserts in front of token `at`; what is inserted later goes behind.
    fn insert(&mut self, at: usize, text: &str) {
        self.before[at].get_or_insert_default().push_str(text);
    }

    fn apply(self, tokens: &[Token]) -> String {
        let mut out = String::with_capacity(tokens.iter().map(|t| t.text.len()).sum::<usize>() + 64);
        for (i, token) in tokens.iter().enumerate() {
            out.push_str(self.before[i].as_deref().unwrap_or(""));
            out.push_str(self.replace[i].as_deref().unwrap_or(token.text));
        }
        out.push_str(self.before[tokens.len()].as_deref().unwrap_or(""));
        out
    }
}

/// The next token from `at` on that is not white space.
fn significant(tokens: &[Token], at: usize) -> Option<usize> {
    (at..tokens.len()).find(|&i| tokens[i].kind != Kind::Verbatim)
}

/// The last token before `at` that is not white space.
fn previous(tokens: &[Token], at: usize) -> Option<usize> {
    (0..at).rev().find(|&i| tokens[i].kind != Kind::Verbatim)
}

/// Whether an operator at `at` begins an operand, so that it is a sign.
fn is_prefix(tokens: &[Token], at: usize) -> bool {
    let Some(before) = previous(tokens, at) else { return false };
    let text = tokens[before].text;
    match tokens[before].kind {
        Kind::Open => true,
        Kind::Operator => !matches!(text, ")" | "]" | "}"),
        Kind::Name => matches!(text, "and" | "or" | "not" | "in" | "is" | "if" | "else" | "elif"),
        _ => false,
    }
}

fn edit_tag(tokens: &[Token], open: usize, edits: &mut Edits) {
    let Some(name) = significant(tokens, open + 1).filter(|&i| tokens[i].kind == Kind::Name) else { return };
    if !tokens[open].text.starts_with("{%") {
        return;
    }
    match tokens[name].text {
        "generation" => edits.replace[name] = Some("with".to_owned()),
        "endgeneration" => edits.replace[name] = Some("endwith".to_owned()),
        "for" => edit_for(tokens, name, edits),
        _ => {}
    }
}

fn edit_for(tokens: &[Token], for_: usize, edits: &mut Edits) {
    let is = |i: usize, words: &[&str]| tokens[i].kind == Kind::Name && words.contains(&tokens[i].text);
    let Some(in_) =
        (for_..tokens.len()).take_while(|&i| tokens[i].kind != Kind::Close).find(|&i| is(i, &["in"]))
    else {
        return;
    };
    let Some(start) = significant(tokens, in_ + 1) else { return };
    let mut depth = 0usize;
    for (end, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            _ if depth == 0 && (token.kind == Kind::Close || is(end, &["if", "recursive"])) => {
                if end > start {
                    edits.insert(start, "(");
                    edits.insert(end, &format!(")|{ITER} "));
                }
                return;
            }
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// The end of the operand that starts at `start`: a sign, an atom, and what is attached to it.
fn operand_end(tokens: &[Token], start: usize) -> Option<usize> {
    let mut at = significant(tokens, start)?;
    while matches!(tokens[at].text, "-" | "+") {
        at = significant(tokens, at + 1)?;
    }
    let mut end = match (tokens[at].kind, tokens[at].text) {
        (Kind::Operator, "(" | "[" | "{") => closing(tokens, at)? + 1,
        (Kind::Name | Kind::Str | Kind::Number, _) => at + 1,
        _ => return None,
    };
    while let Some(next) = significant(tokens, end) {
        end = match (tokens[next].kind, tokens[next].text) {
            (Kind::Operator, "." | "|") => significant(tokens, next + 1)? + 1,
            (Kind::Operator, "(" | "[") => closing(tokens, next)? + 1,
            (Kind::Str, _) if tokens[at].kind == Kind::Str => next + 1,
            _ => break,
        };
    }
    Some(end)
}

/// Deepest nesting of brackets that is looked into; the engine's parser refuses less. It keeps the
/// search for closing brackets linear in the source.
const MAX_BRACKETS: usize = 200;

/// The bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match (token.kind, token.text) {
            (Kind::Operator, "(" | "[" | "{") if depth == MAX_BRACKETS => return None,
            (Kind::Operator, "(" | "[" | "{") => depth += 1,
            (Kind::Operator, ")" | "]" | "}") => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            (Kind::Close, _) => return None,
            _ => {}
        }
    }
    None
}

fn edit_percent(tokens: &[Token], at: usize, edits: &mut Edits) {
    let is_literal = previous(tokens, at).is_some_and(|i| tokens[i].kind == Kind::Str);
    if let Some(end) = operand_end(tokens, at + 1).filter(|_| is_literal) {
        edits.replace[at] = Some(format!("|{PERCENT}("));
        edits.insert(end, ")");
    }
}

fn edit_concat(tokens: &[Token], at: usize, edits: &mut Edits) {
    let Some(end) = operand_end(tokens, at + 1) else { return };
    // An arithmetic operator after the operand binds tighter than `~` but looser than a filter.
    let next = significant(tokens, end).map_or("", |i| tokens[i].text);
    let is_string = significant(tokens, at + 1).is_some_and(|i| tokens[i].kind == Kind::Str && i + 1 == end);
    if !is_string && !matches!(next, "*" | "/" | "//" | "%" | "**") {
        edits.insert(end, &format!("|{STR}"));
    }
}

/// Cuts a template into tokens that together are `source`; `None` if a tag does not close.
fn tokenize(source: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(start) = find_tag(rest) {
        let tag = &rest[start..];
        if tag.starts_with("{#") {
            let end = start + tag.find("#}")? + 2;
            tokens.push(Token { kind: Kind::Verbatim, text: &rest[..end] });
            rest = &rest[end..];
        } else if let Some(len) = raw_block_len(tag) {
            tokens.push(Token { kind: Kind::Verbatim, text: &rest[..start + len] });
            rest = &rest[start + len..];
        } else {
            tokens.push(Token { kind: Kind::Verbatim, text: &rest[..start] });
            rest = tokenize_tag(tag, &mut tokens)?;
        }
    }
    tokens.push(Token { kind: Kind::Verbatim, text: rest });
    Some(tokens)
}

/// Where the next tag or comment starts.
fn find_tag(text: &str) -> Option<usize> {
    text.match_indices('{')
        .map(|m| m.0)
        .find(|&i| matches!(text.as_bytes().get(i + 1), Some(b'{' | b'%' | b'#')))
}

/// Length of the `{% raw %}` … `{% endraw %}` block that `tag` starts with.
fn raw_block_len(tag: &str) -> Option<usize> {
    let opening_len = block_tag_len(tag, "raw")?;
    let mut from = opening_len;
    loop {
        from += tag[from..].find("{%")?;
        if let Some(len) = block_tag_len(&tag[from..], "endraw") {
            return Some(from + len);
        }
        from += 2;
    }
}

/// Length of a tag of the form `{%- name -%}` at the start of `text`.
fn block_tag_len(text: &str, name: &str) -> Option<usize> {
    let inner = text.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let inner = inner.strip_prefix(name)?.trim_start();
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).strip_prefix("%}")?;
    Some(text.len() - inner.len())
}

/// Pushes the tokens of one tag and returns what follows it.
fn tokenize_tag<'a>(tag: &'a str, tokens: &mut Vec<Token<'a>>) -> Option<&'a str> {
    let end = if tag.starts_with("{{") { "}}" } else { "%}" };
    let open_len = if tag[2..].starts_with(['-', '+']) { 3 } else { 2 };
    tokens.push(Token { kind: Kind::Open, text: &tag[..open_len] });
    let mut rest = &tag[open_len..];
    let mut depth = 0usize;
    loop {
        let first = rest.chars().next()?;
        let marked = rest.strip_prefix(['-', '+']).is_some_and(|after| after.starts_with(end));
        let (kind, len) = match first {
            _ if depth == 0 && (marked || rest.starts_with(end)) => (Kind::Close, 2 + usize::from(marked)),
            c if c.is_whitespace() => (Kind::Verbatim, run_len(rest, char::is_whitespace)),
            '\'' | '"' => (Kind::Str, string_len(rest, first)?),
            c if c.is_ascii_digit() => (Kind::Number, number_len(rest)),
            c if c == '_' || c.is_alphanumeric() => {
                (Kind::Name, run_len(rest, |c| c == '_' || c.is_alphanumeric()))
            }
            _ => (Kind::Operator, operator_len(rest)),
        };
        let (text, after) = rest.split_at(len);
        match text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        tokens.push(Token { kind, text });
        rest = after;
        if kind == Kind::Close {
            return Some(rest);
        }
    }
}

fn run_len(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}

/// Length of a number; a sign belongs to it only after an exponent.
fn number_len(text: &str) -> usize {
    let digits = run_len(text, |c| c.is_ascii_alphanumeric() || c == '_');
    let after = &text[digits..];
    let is_fraction = after.strip_prefix('.').is_some_and(|f| f.starts_with(|c: char| c.is_ascii_digit()));
    let mut len = digits;
    if is_fraction {
        len += 1 + run_len(&after[1..], |c| c.is_ascii_alphanumeric() || c == '_');
    }
    let is_decimal = !text.starts_with("0x") && !text.starts_with("0X");
    if is_decimal && text[..len].ends_with(['e', 'E']) && text[len..].starts_with(['-', '+']) {
        len += 1 + run_len(&text[len + 1..], |c| c.is_ascii_digit() || c == '_');
    }
    len
}

/// Length of a string literal; `None` if it does not end.
fn string_len(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(i + 1),
            _ => {}
        }
    }
    None
}

fn operator_len(text: &str) -> usize {
    let two = ["**", "//", "==", "!=", "<=", ">="];
    if two.iter().any(|op| text.starts_with(op)) { 2 } else { text.chars().next().map_or(0, char::len_utf8) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(rewrite(source), expected);
    }

    #[test]
    fn rewrites_what_differs() {
        check("{%- generation -%}x{% endgeneration %}", "{%- with -%}x{% endwith %}");
        check("{% for a, b in x.items() if a %}", "{% for a, b in (x.items() )|motet_iter if a %}");
        check("{%- for x in [1, {'a': 2}] -%}", "{%- for x in ([1, {'a': 2}] )|motet_iter -%}");
        check("{% for x in a~b%}", "{% for x in (a~b|motet_str)|motet_iter %}");
        check("{{ 'x%d' % (1, 2) }}", "{{ 'x%d' |motet_percent( (1, 2)) }}");
        check("{{ '%s' % a.b[0]|upper + c }}", "{{ '%s' |motet_percent( a.b[0]|upper) + c }}");
        check("{{ a % b }}", "{{ a % b }}");
        check("{{ 'a' ~ b.c ~ 'd' ~ e * 2 }}", "{{ 'a' ~ b.c|motet_str ~ 'd' ~ e * 2 }}");
        check("{{ +n }}{{ 1 + +n }}{{ [+1] }}{{ a + b }}", "{{  n }}{{ 1 +  n }}{{ [ 1] }}{{ a + b }}");
        check("{%+ if x %}\r\n", "{%+ if x %}\n");
    }

    #[test]
    fn leaves_the_rest_alone() {
        let sources = [
            "{# {% generation %} ' #}{% raw %}{{ 'x' % y {% endraw %}",
            "{{ '{% for x in y %}' }} {{ \"it's\" }} { {",
            "{{ 'unterminated }}",
            "{{ {'a': {'b': 1}} }}",
            "{{ 1e-5 - 1.5e+3 }}",
            "{{ a",
            "plain } %} text",
        ];
        sources.iter().for_each(|source| check(source, source));
    }

    proptest! {
        #[test]
        fn tokens_join_to_the_source(source in "([{}%#'\"a +~-]|\\{\\{|%\\}|for|in|raw|endraw|é){0,30}") {
            if let Some(tokens) = tokenize(&source) {
                prop_assert_eq!(tokens.iter().map(|t| t.text).collect::<String>(), source.clone());
            }
            let _ = rewrite(&source);
        }
    }
}
