use crate::support::World;

#[test]
fn help_teaches() {
    let world = World::new();
    for args in [
        &["--help"][..],
        &["serve", "--help"],
        &["chat", "--help"],
        &["run", "--help"],
        &["model", "--help"],
        &["model", "pull", "--help"],
        &["model", "inspect", "--help"],
        &["bench", "serve", "--help"],
        &["config", "check", "--help"],
        &["bench", "--help"],
        &["bench", "kernels", "--help"],
        &["bench", "engine", "--help"],
    ] {
        let (code, out, err) = world.run(args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        let name = args.join(" ").replace("--help", "help").replace(' ', "_");
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name, out);
        });
    }
}

#[test]
fn nothing_typed_shows_help_and_is_a_mistake() {
    let (code, _, err) = World::new().run(&[]);
    assert_eq!(code, 2);
    assert!(err.contains("Usage: motet") && err.contains("motet chat"), "{err}");
}

#[test]
fn version_and_completions_print() {
    let world = World::new();
    let check = |args: &[&str], part: &str| {
        let (code, out, err) = world.run(args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        assert!(out.contains(part), "{args:?}: {out}");
    };
    check(&["--version"], concat!("motet ", env!("CARGO_PKG_VERSION")));
    check(&["completions", "bash"], "complete -F _motet");
    check(&["completions", "zsh"], "#compdef motet");
    check(&["completions", "fish"], "complete -c motet");
}
