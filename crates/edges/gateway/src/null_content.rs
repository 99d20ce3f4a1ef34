//! Assistant messages that have tool calls and no content.
//!
//! Some templates tell them by `content is none`; others add the content to a text, which fails on
//! null, or print it as the word None. Which kind a template is, it shows once, when its model is set.

use motet_text::{ChatTemplate, RenderInput};
use serde_json::{Value, json};

/// Whether the template takes `"content": null`; if not, it gets an empty text instead.
pub(crate) fn is_taken_by(template: &ChatTemplate) -> bool {
    let render = |content: Value| {
        // Nine letters: some templates insist on them.
        let call =
            json!({"id": "callabcde", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let calling = json!({"role": "assistant", "content": content, "tool_calls": [call]});
        let messages = json!([{"role": "user", "content": "a"}, calling]);
        template.render(&RenderInput { messages, ..RenderInput::default() })
    };
    match render(Value::Null) {
        Ok(text) => !text.to_ascii_lowercase().contains("none"),
        // A template that fails on both has another reason.
        Err(_) => render("".into()).is_err(),
    }
}

/// Makes null contents empty texts.
pub(crate) fn fill(messages: &mut Value) {
    for message in messages.as_array_mut().into_iter().flatten() {
        match message.get_mut("content") {
            Some(content) if content.is_null() => *content = "".into(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let check = |body: &str, is_taken: bool| {
            let source = format!("{{% for m in messages %}}{body}{{% endfor %}}");
            assert_eq!(is_taken_by(&ChatTemplate::new(&source, "", "").unwrap()), is_taken, "{body}");
        };
        check("{{ '<' + m.content }}", false);
        check("{{ m.content }}", false);
        check(
            "{% if m.content is none %}[{{ m.tool_calls[0].function.name }}]{% else %}{{ m.content }}{% endif %}",
            true,
        );
        check("{% if m.content %}{{ m.content }}{% endif %}", true);
        check("{{ raise_exception('never') }}", true);
    }
}
