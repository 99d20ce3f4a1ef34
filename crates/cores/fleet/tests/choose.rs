//! Which model answers: a table of cases, and what holds for every catalogue.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use motet_fleet::{
    AUTO, Asked, Candidate, Choice, Facts, Pressure, Readiness, Role, Signs, Why, choose, tokens_of,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// An owned [`Candidate`].
#[derive(Debug, Clone)]
struct Model {
    id: String,
    aliases: Vec<String>,
    roles: Vec<Role>,
    readiness: Readiness,
    context: Option<u32>,
    size: u64,
    smaller: Option<String>,
}

impl Model {
    fn new(id: &str, size: u64, roles: &[Role]) -> Self {
        Self {
            id: id.into(),
            aliases: vec![],
            roles: roles.to_vec(),
            readiness: Readiness::Ready,
            context: Some(4096),
            size,
            smaller: None,
        }
    }

    fn candidate(&self) -> Candidate<'_> {
        let Self { id, aliases, roles, readiness, context, size, smaller } = self;
        Candidate {
            id,
            aliases,
            roles,
            readiness: *readiness,
            context: *context,
            size: *size,
            smaller: smaller.as_deref(),
        }
    }
}

fn run(
    models: &[Model],
    name: &str,
    allowed: Option<&[String]>,
    smaller_model: bool,
    facts: Facts,
) -> Option<Choice> {
    let candidates: Vec<_> = models.iter().map(Model::candidate).collect();
    let asked = Asked { name, allowed, pressure: Pressure { smaller_model } };
    choose(&asked, &candidates, || facts)
}

fn three() -> Vec<Model> {
    let mut models = vec![
        Model::new("lab/base", 20, &[Role::Fast]),
        Model::new("lab/small", 10, &[Role::Mini]),
        Model::new("lab/big", 30, &[Role::Reasoning]),
    ];
    models[2].aliases = vec!["gpt-4o".into()];
    models[2].smaller = Some("lab/base".into());
    models[2].context = Some(32_768);
    models
}

fn question(text: &str) -> Facts {
    let tokens = tokens_of(text.len());
    Facts {
        prompt_tokens: tokens,
        question_tokens: tokens,
        signs: Signs::of(text),
        turns: 1,
        ..Facts::default()
    }
}

/// `id (why)`, or `-` for nothing.
fn told(models: &[Model], choice: Option<Choice>) -> String {
    choice.map_or("-".into(), |choice| format!("{} ({})", models[choice.model].id, choice.why))
}

#[test]
fn names_roles_and_auto() {
    let models = three();
    let check = |name: &str, text: &str, want: &str| {
        assert_eq!(told(&models, run(&models, name, None, false, question(text))), want, "{name} {text}");
    };
    check("lab/base", "Prove it", "lab/base (exact)");
    check("gpt-4o", "Hi", "lab/big (alias:gpt-4o)");
    check("mini", "Prove it", "lab/small (role:mini)");
    check("reasoning", "Hi", "lab/big (role:reasoning)");
    check(AUTO, "Hi", "lab/small (auto:easy)");
    check(AUTO, "Prove it step by step", "lab/big (auto:hard:math,steps)");
    check(AUTO, &"word ".repeat(3000), "lab/big (auto:context)");
    for name in [
        "no-such-model",
        "",
        "LAB/BASE",
        "lab/base ",
        " lab/base",
        "../x",
        "Auto",
        "MINI",
        &"x".repeat(10_000),
    ] {
        check(name, "Hi", "-");
    }
    let medium = Facts { has_tools: true, ..Facts::default() };
    assert_eq!(told(&models, run(&models, AUTO, None, false, medium)), "lab/base (auto:medium:tools)");
}

#[test]
fn without_roles_sizes_decide() {
    let models: Vec<_> = three().into_iter().map(|model| Model { roles: vec![], ..model }).collect();
    let check =
        |facts: Facts, want: &str| assert_eq!(told(&models, run(&models, AUTO, None, false, facts)), want);
    check(question("Hi"), "lab/small (auto:easy)");
    check(question("Prove it"), "lab/big (auto:hard:math)");
    check(Facts { has_tools: true, ..Facts::default() }, "lab/base (auto:medium:tools)");
    assert_eq!(run(&models, "mini", None, false, question("Hi")), None);
    assert_eq!(
        told(&models, run(&models[..1], AUTO, None, false, question("Prove it"))),
        "lab/base (auto:only)"
    );
}

#[test]
fn what_can_answer_comes_first() {
    let mut models = three();
    models[1].readiness = Readiness::Loading;
    let auto = |models: &[Model]| told(models, run(models, AUTO, None, false, question("Hi")));
    assert_eq!(auto(&models), "lab/base (auto:easy)");
    models[0].readiness = Readiness::Failed;
    assert_eq!(auto(&models), "lab/big (auto:only)");
    models[2].readiness = Readiness::Failed;
    assert_eq!(auto(&models), "lab/small (auto:only)");
    assert_eq!(told(&models, run(&models, "lab/big", None, false, question("Hi"))), "lab/big (exact)");
}

#[test]
fn a_smaller_model_under_pressure() {
    let mut models = three();
    let check = |models: &[Model], name: &str, text: &str, want: &str| {
        assert_eq!(told(models, run(models, name, None, true, question(text))), want, "{name}");
    };
    check(&models, "reasoning", "Hi", "lab/base (degraded:overload, instead of lab/big)");
    check(&models, AUTO, "Prove it", "lab/base (degraded:overload, instead of lab/big)");
    check(&models, "lab/big", "Hi", "lab/big (exact)");
    check(&models, "gpt-4o", "Hi", "lab/big (alias:gpt-4o)");
    check(&models, "mini", "Hi", "lab/small (role:mini)");
    check(&models, "reasoning", &"word ".repeat(3000), "lab/big (role:reasoning)");
    models[0].readiness = Readiness::Loading;
    check(&models, "reasoning", "Hi", "lab/big (role:reasoning)");
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn names() -> impl Strategy<Value = String> {
    select(&NAMES[..]).prop_map(str::to_owned)
}

fn model() -> impl Strategy<Value = Model> {
    let readiness = select(vec![Readiness::Ready, Readiness::Loading, Readiness::Failed]);
    let roles = subsequence(Role::ALL.to_vec(), 0..=2);
    let context = option::of(select(vec![100u32, 1000, 10_000]));
    (
        vec(select(&["x", "y", "z"][..]).prop_map(str::to_owned), 0..2),
        roles,
        readiness,
        context,
        0u64..3,
        option::of(names()),
    )
        .prop_map(|(aliases, roles, readiness, context, size, smaller)| Model {
            id: String::new(),
            aliases,
            roles,
            readiness,
            context,
            size,
            smaller,
        })
}

/// Models with names of their own.
fn catalogues() -> impl Strategy<Value = Vec<Model>> {
    vec(model(), 0..=NAMES.len()).prop_map(|mut models| {
        models.iter_mut().zip(NAMES).for_each(|(model, name)| model.id = name.to_owned());
        models
    })
}

fn any_facts() -> impl Strategy<Value = Facts> {
    (0u64..20_000, 0u64..1000, any::<[bool; 4]>(), 0u32..12, option::of(1u32..4000)).prop_map(
        |(prompt_tokens, question_tokens, [has_code, has_math, has_steps, has_tools], turns, max_tokens)| {
            Facts {
                prompt_tokens,
                question_tokens,
                signs: Signs { has_code, has_math, has_steps },
                turns,
                max_tokens,
                has_tools,
            }
        },
    )
}

fn questions() -> impl Strategy<Value = String> {
    let all = NAMES.iter().chain(&["x", "y", "z", "mini", "fast", "reasoning", AUTO, "no", ""]);
    select(all.map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_choice_keeps_the_rules(
        models in catalogues(),
        name in questions(),
        allowed in option::of(vec(names(), 0..4)),
        smaller_model: bool,
        facts in any_facts(),
    ) {
        let allowed = allowed.as_deref();
        let choice = run(&models, &name, allowed, smaller_model, facts);
        // The same question has the same answer.
        prop_assert_eq!(&choice, &run(&models, &name, allowed, smaller_model, facts));
        // A model that is not allowed is one that isn't there.
        let is_allowed = |model: &Model| allowed.is_none_or(|names| names.contains(&model.id));
        let kept: Vec<_> = models.iter().filter(|model| is_allowed(model)).cloned().collect();
        let among_kept = run(&kept, &name, None, smaller_model, facts);
        prop_assert_eq!(told(&models, choice.clone()), told(&kept, among_kept));
        // A name that is there is respected.
        if let Some(named) = kept.iter().find(|model| model.id == name) {
            prop_assert_eq!(told(&models, choice.clone()), format!("{} (exact)", named.id));
        }
        let is_open = Role::named(&name).is_some() || name == AUTO;
        match choice {
            Some(Choice { model, why }) => {
                prop_assert!(is_allowed(&models[model]));
                // A stand-in is ready, was named as one, and is told.
                if let Why::Degraded(meant) = why {
                    prop_assert!(smaller_model && is_open);
                    let meant = kept.iter().find(|model| model.id == meant).unwrap();
                    prop_assert_eq!(meant.smaller.as_ref(), Some(&models[model].id));
                    prop_assert_eq!(models[model].readiness, Readiness::Ready);
                } else if name == AUTO {
                    // Nothing that can answer is passed over for what can't.
                    let best = kept.iter().map(|model| model.readiness).min().unwrap();
                    prop_assert_eq!(models[model].readiness, best);
                }
            }
            None => prop_assert!(name != AUTO || kept.is_empty()),
        }
    }
}
