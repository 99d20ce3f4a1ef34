//! What a line that starts with `/` asks for.

/// Commands and what they do, for `/help` and completion.
pub(super) const COMMANDS: [(&str, &str); 5] = [
    ("/help", "this list"),
    ("/clear", "forget the conversation"),
    ("/system", "show the instructions; with a text, set them and start over; with -, remove them"),
    ("/retry", "answer the last message again"),
    ("/exit", "leave (also Ctrl-D, or Ctrl-C at the empty prompt)"),
];

/// A line of input, understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Say(String),
    Help,
    Clear,
    ShowSystem,
    /// `None` removes the instructions.
    SetSystem(Option<String>),
    Retry,
    Exit,
    /// No command has this name; the nearest that has.
    Unknown {
        name: String,
        similar: Option<&'static str>,
    },
}

/// What `input`, one message or command, asks for. A space before the `/` makes it a message.
pub(super) fn parse(input: &str) -> Action {
    if input.trim().is_empty() {
        return Action::Nothing;
    }
    if !input.starts_with('/') {
        return Action::Say(input.trim().to_owned());
    }
    let (name, rest) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    match (name, rest.trim()) {
        ("/help" | "/?", _) => Action::Help,
        ("/clear" | "/new", _) => Action::Clear,
        ("/system", "") => Action::ShowSystem,
        ("/system", "-") => Action::SetSystem(None),
        ("/system", text) => Action::SetSystem(Some(text.to_owned())),
        ("/retry", _) => Action::Retry,
        ("/exit" | "/quit" | "/bye", _) => Action::Exit,
        _ => Action::Unknown { name: name.to_owned(), similar: similar(name) },
    }
}

fn similar(name: &str) -> Option<&'static str> {
    let scored = COMMANDS.iter().map(|(known, _)| (strsim::jaro_winkler(known, name), *known));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands() {
        let check = |input: &str, expected: Action| assert_eq!(parse(input), expected, "{input}");
        let unknown = |name: &str, similar| Action::Unknown { name: name.to_owned(), similar };
        check("  ", Action::Nothing);
        check(" hi there\n", Action::Say("hi there".to_owned()));
        check(" /etc/hosts is what?", Action::Say("/etc/hosts is what?".to_owned()));
        check("/help", Action::Help);
        check("/system  be brief ", Action::SetSystem(Some("be brief".to_owned())));
        check("/system -", Action::SetSystem(None));
        check("/system", Action::ShowSystem);
        check("/quit", Action::Exit);
        check("/claer", unknown("/claer", Some("/clear")));
        check("/etc/hosts", unknown("/etc/hosts", None));
    }
}
