use std::{io::Read, process::Stdio};

use crate::support::{World, parts};

#[test]
fn run_joins_prompt_and_pipe() {
    let world = World::new();
    let run = |args: &[&str], input: &str| {
        let mut all = vec!["run", "--seed", "7", "--max-tokens", "12"];
        all.extend(args);
        let (code, out, err) = parts(world.with_model(&all, input));
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        assert!(out.ends_with('\n') && !out.contains('\x1b'), "{out:?}");
        out
    };
    let joined = run(&["hello"], "you and the user\n");
    assert_eq!(joined, run(&["hello"], "you and the user\n"), "the same seed gives the same reply");
    assert_eq!(joined, run(&[], "hello\n\nyou and the user"), "an empty line joins them");
    assert_eq!(joined, run(&["hello\n\nyou and", "the user"], ""), "words are joined by spaces");
    assert_ne!(joined, run(&["hello"], ""));
    assert_ne!(joined, run(&["--system", "be you", "hello"], "you and the user\n"));
    let raw = run(&["--raw", "hello"], "");
    assert_ne!(raw, run(&["hello"], ""), "without the template the prompt is another");
    assert_eq!(raw, run(&["--raw", "--threads", "2", "hello"], ""), "threads do not change the reply");
}

#[test]
fn run_is_quiet_when_its_reader_leaves() {
    let world = World::new();
    let model = world.model();
    let mut child = world
        .motet(&["run", "-m", &model, "--kv-memory", "4MiB", "hello"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn chat_takes_messages_and_commands_from_a_pipe() {
    let world = World::new();
    let chat = |input: &str| {
        let (code, out, err) = parts(world.with_model(&["chat", "--seed", "3", "--max-tokens", "6"], input));
        assert_eq!((code, err.as_str()), (0, ""), "{input:?}");
        out
    };
    let one = chat("hello\n");
    let two = chat("hello\nyou\n");
    assert!(two.starts_with(&one) && two.len() > one.len(), "{one:?} {two:?}");
    assert_eq!(chat("hello\n/exit\nyou\n"), one);
    assert_eq!(chat("hello\n/clear\nhello\n"), one.repeat(2), "a cleared conversation is a new one");
    assert_eq!(chat("hello\n/retry\n"), one.repeat(2), "a fixed seed answers alike");
    assert_eq!(chat("\"\"\"\nhello\n\"\"\"\n/help\n\n"), one);
    assert_ne!(chat("/system be you\nhello\n"), one);
    assert_eq!(chat(""), "");
}
