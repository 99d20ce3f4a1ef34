//! Templates against what transformers and Jinja2 render.

use motet_text::{AbsentValue, ChatTemplate, CivilTime, RenderInput, TemplateError};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The clock of the reference renderings.
const NOW: CivilTime = CivilTime { year: 2024, month: 7, day: 26, hour: 15, minute: 4, second: 5 };

/// Snippets that minijinja cannot render as Jinja2 does, and why. A row that passes must leave the list.
const OUT_OF_REACH: &[(&str, &str)] = &[
    (
        "{% macro m(a, b=2) %}({{ a }},{{ b }}){% endmacro %}{{ m(1) }}{{ m(1,3) }}{{ m(b=5,a=4) }}{{ m() }}{{ m.name }}{{ m.arguments }}",
        "a macro's `arguments` is a list where Jinja2 has a tuple; everything else on the line agrees",
    ),
    (
        "{% macro v(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1,2,3,k=4) }}",
        "macros have no `varargs` and `kwargs`: calling one with more arguments than it names is an error",
    ),
    ("{{ 'a' < 1 }}", "values of different types have an order; Python refuses to compare them"),
    ("{{ self }}", "`self` names the template's blocks but prints nothing"),
    (
        "{{ {'content': 'x'}.content }}{{ {'items': 5}['items'] }}{{ {'items': 5}.items is callable }}",
        "a mapping's own key goes before the method of that name when the method is not called",
    ),
];

/// Templates with rows that cannot be reached: how many, and why. The numbers can only shrink.
const TEMPLATES_OUT_OF_REACH: &[(&str, usize, &str)] = &[(
    "meetkai-functionary-medium-v3.1.jinja",
    10,
    "adds plain strings to one marked `|safe`; MarkupSafe escapes them even where escaping is off, minijinja does not",
)];

fn jsonl(relative: &str) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(motet_testkit::shared(relative)?).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn json(relative: &str) -> Option<Value> {
    Some(serde_json::from_str(&std::fs::read_to_string(motet_testkit::shared(relative)?).unwrap()).unwrap())
}

/// `None` if a rendering is what the row expects, else what differs.
fn difference(row: &Value, got: &Result<String, TemplateError>) -> Option<String> {
    match (row["expected"].as_str(), got) {
        (Some(expected), Ok(text)) if text == expected => None,
        (None, Err(TemplateError::Raised(message))) if row["error"].as_str()?.ends_with(message) => None,
        (None, Err(_)) if row["error_type"] != "TemplateError" && !is_raised(row) => None,
        (Some(expected), Ok(text)) => {
            let same = expected.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
            let tail = |s: &str| {
                String::from_utf8_lossy(&s.as_bytes()[same.saturating_sub(30)..])
                    .chars()
                    .take(150)
                    .collect::<String>()
            };
            Some(format!("want …{:?}\n   got  …{:?}", tail(expected), tail(text)))
        }
        (Some(expected), Err(e)) => Some(format!("want {expected:?}\n   got  {e}")),
        (None, got) => Some(format!("want error {}\n   got  {got:?}", row["error"])),
    }
}

/// Whether the template itself raised the row's error.
fn is_raised(row: &Value) -> bool {
    row["error"].as_str().is_some_and(|e| e.starts_with("TemplateError:"))
}

#[test]
fn engine_features() {
    let Some(rows) = jsonl("reference/templates/jinja_features.jsonl") else { return };
    let Some(Value::Object(mut context)) = json("reference/templates/jinja_features_context.json") else {
        return;
    };
    let messages = context.remove("messages").unwrap();
    let input = RenderInput { messages, extra: context, now: NOW, ..RenderInput::default() };
    let mut failed = BTreeSet::new();
    for row in &rows {
        let source = row["template"].as_str().unwrap();
        let got = ChatTemplate::new(source, "", "").and_then(|template| template.render(&input));
        let Some(difference) = difference(row, &got) else { continue };
        failed.insert(source);
        if !OUT_OF_REACH.iter().any(|(known, _)| *known == source) {
            println!("{source:?}\n   {difference}");
        }
    }
    assert_eq!(failed, OUT_OF_REACH.iter().map(|(source, _)| *source).collect());
}

#[test]
fn published_templates() {
    let Some(rows) = jsonl("reference/templates/renderings.jsonl") else { return };
    let Some(conversations) = json("reference/templates/conversations.json") else { return };
    let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        let name = row["template"].as_str().unwrap();
        let path = motet_testkit::shared(&format!("reference/templates/jinja/{name}")).unwrap();
        let source = std::fs::read_to_string(path).unwrap();
        let got = render_row(&source, row, &conversations[row["conversation"].as_str().unwrap()]);
        if let Some(difference) = difference(row, &got) {
            *failed.entry(name).or_default() += 1;
            println!("{name} {} {}\n   {difference}", row["conversation"], row["kwargs"]);
        }
    }
    assert_eq!(failed, TEMPLATES_OUT_OF_REACH.iter().map(|&(name, count, _)| (name, count)).collect());
    assert!(rows.len() > 2000);
}

/// Templates come with model files, and a model file may be hostile: each of these ends with an error,
/// soon, and without taking the process along.
#[test]
fn hostile_templates_end_with_an_error() {
    let grow = |step: &str, rounds: usize, end: &str| {
        format!(
            "{{% set ns = namespace(x='aaaa') %}}{{% for i in range({rounds}) %}}{{% set ns.x = {step} %}}{{% endfor %}}{end}"
        )
    };
    let templates = [
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(100000000000) %}{% endfor %}".to_owned(),
        grow("ns.x ~ ns.x", 60, ""),
        grow("ns.x + ns.x", 60, ""),
        grow("[ns.x, ns.x]", 60, "{{ ns.x }}"),
        grow("[ns.x]", 50_000, "{{ ns.x }}"),
        grow("{'a': ns.x}", 50_000, "{{ ns.x|tojson }}"),
        grow(
            "[ns.x]",
            99_999,
            "{% for i in range(9) %}{% for j in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}",
        ),
        grow("[ns.x]", 99_999, "{{ ns.x == [ns.x] }}{{ raise_exception('compared') }}"),
        "{{ 'a' * 1000000000000 }}".to_owned(),
        "{{ ('a' * 10000000).replace('a', 'b' * 10000000) }}".to_owned(),
        "{{ ('a,' * 1000000).split(',')|join('b' * 1000000) }}".to_owned(),
        "{{ 'a'.center(10000000000) }}".to_owned(),
        "{{ 'a'.zfill(10000000000) }}".to_owned(),
        "{{ 'a\na'|indent(10000000000) }}".to_owned(),
        "{{ '%1000000000d' % 5 }}".to_owned(),
        "{{ '{:>1000000000}'.format(1) }}".to_owned(),
        "{{ range(100000000)|list }}".to_owned(),
        "{{ 10 ** 1000000 }}".to_owned(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}".to_owned(),
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned(),
        format!("{{{{ {} }}}}", "[".repeat(100_000)),
        format!("{{{{ {} }}}}", "a ~ (".repeat(50_000)),
        "{% if x %}".repeat(20_000),
        "x".repeat(300_000),
    ];
    for source in &templates {
        let start = Instant::now();
        let result =
            ChatTemplate::new(source, "", "").and_then(|template| template.render(&RenderInput::default()));
        let (took, shown) = (start.elapsed(), source.chars().take(80).collect::<String>());
        assert!(result.is_err(), "{shown}: {} bytes", result.map_or(0, |text| text.len()));
        assert!(took < Duration::from_secs(20), "{shown} took {took:?}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let user = RenderInput { messages: serde_json::json!([{"role": "user"}]), ..RenderInput::default() };
    let check = |source: &str, expected: &str| {
        let result = ChatTemplate::new(source, "", "").and_then(|template| template.render(&user));
        assert_eq!(result.unwrap_err().to_string(), expected);
    };
    check("{{ raise_exception('Only user roles, please') }}", "Only user roles, please");
    check("{% macro m() %}{{ raise_exception('inner') }}{% endmacro %}{{ m() }}", "inner");
    check("a\n{% if %}", "the chat template does not parse (line 2): syntax error: unexpected end of block");
    check("\n{{ nofunc() }}", "the chat template failed (line 2): unknown function: nofunc is unknown");
    check(
        "{{ 'a' * 100000000000 }}",
        "the chat template exceeded its limit: too many steps or too much text",
    );
    let extra = Map::from_iter([("bos_token".to_owned(), Value::from("x"))]);
    let reserved = ChatTemplate::new("", "", "").unwrap().render(&RenderInput { extra, ..user.clone() });
    assert_eq!(reserved, Err(TemplateError::Reserved("bos_token".to_owned())));
}

fn render_row(source: &str, row: &Value, conversation: &Value) -> Result<String, TemplateError> {
    let mut extra: Map<String, Value> = row["kwargs"].as_object().unwrap().clone();
    let mut text =
        |name: &str| extra.remove(name).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let (bos, eos) = (text("bos_token"), text("eos_token"));
    let absent = if row["omit_none"] == true { AbsentValue::Undefined } else { AbsentValue::None };
    let input = RenderInput {
        messages: conversation["messages"].clone(),
        tools: (row["has_tools"] == true).then(|| conversation["tools"].clone()),
        documents: None,
        add_generation_prompt: extra.remove("add_generation_prompt") == Some(Value::Bool(true)),
        now: NOW,
        extra,
    };
    ChatTemplate::new(source, &bos, &eos)?.with_absent(absent).render(&input)
}
