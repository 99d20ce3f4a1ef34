//! Tokens to text: the deltas are the decoded bytes up to the first stop string, however they were cut.

use crate::tiny;
use motet_text::{ReplyDecoder, SpecialTokens, Tokenizer};
use motet_types::TokenId;
use proptest::prelude::*;
use std::sync::Arc;

/// Streams `ids`; the whole text and whether a stop string ended it.
fn stream(tokenizer: &Arc<Tokenizer>, ids: &[TokenId], stop: &[String]) -> (String, bool) {
    let mut decoder = ReplyDecoder::new(Arc::clone(tokenizer), stop.to_vec());
    let (mut text, mut stopped) = (String::new(), false);
    for &id in ids {
        let delta = decoder.push(id);
        assert!(!stopped || delta.text.is_empty(), "text after a stop");
        text += &delta.text;
        stopped = delta.stopped;
    }
    let last = decoder.finish();
    text += &last.text;
    assert_eq!(decoder.finish().text, "");
    (text, stopped || last.stopped)
}

/// `text` up to the stop string that is complete first (the longest, of several that end together).
fn cut(text: &str, stop: &[String]) -> (String, bool) {
    for end in 1..=text.len() {
        let ends = |s: &&String| !s.is_empty() && text.as_bytes()[..end].ends_with(s.as_bytes());
        if let Some(longest) = stop.iter().filter(ends).map(String::len).max() {
            return (text[..end - longest].to_owned(), true);
        }
    }
    (text.to_owned(), false)
}

#[test]
fn characters_wait_for_their_last_token() {
    let tokenizer = Arc::new(tiny::tokenizer());
    // 日 has no merge here: three tokens of one byte each
    let ids = tokenizer.encode("a日", SpecialTokens::AsText);
    let mut decoder = ReplyDecoder::new(Arc::clone(&tokenizer), vec![]);
    let deltas: Vec<String> = ids.iter().map(|&id| decoder.push(id).text).collect();
    assert_eq!(deltas, ["a", "", "", "日"]);
    decoder.push(ids[1]);
    assert_eq!(decoder.finish().text, "\u{fffd}");
}

#[test]
fn control_tokens_add_no_text() {
    let tokenizer = Arc::new(tiny::tokenizer());
    let ids = tokenizer.encode("hello<|im_end|><tool>", SpecialTokens::Parse);
    assert_eq!(stream(&tokenizer, &ids, &[]), ("hello<tool>".to_owned(), false));
}

#[test]
fn nothing_follows_a_stop_string() {
    let tokenizer = Arc::new(tiny::tokenizer());
    let ids = tokenizer.encode("hello well, then", SpecialTokens::AsText);
    let stop = |s: &str| vec![s.to_owned()];
    assert_eq!(stream(&tokenizer, &ids, &stop("o w")), ("hell".to_owned(), true));
    assert_eq!(stream(&tokenizer, &ids, &stop("thenx")), ("hello well, then".to_owned(), false));
}

proptest! {
    #[test]
    fn deltas_are_the_decoded_bytes_up_to_the_stop(
        ids in prop::collection::vec(0u32..263, 0..40),
        stop in prop::collection::vec("[a-h\u{fffd}é ]{0,3}|hell|lo", 0..4),
    ) {
        let tokenizer = Arc::new(tiny::tokenizer());
        let expected = cut(&tokenizer.decode(&ids), &stop);
        prop_assert_eq!(stream(&tokenizer, &ids, &stop), expected);
    }

    #[test]
    fn stop_strings_that_occur(
        text in "(hello|é日| |a|b){0,12}",
        from in any::<prop::sample::Index>(),
        len in 1usize..6,
    ) {
        let tokenizer = Arc::new(tiny::tokenizer());
        let chars: Vec<char> = text.chars().collect();
        let from = from.index(chars.len() + 1);
        let stop = vec![chars[from..].iter().take(len).collect::<String>()];
        let ids = tokenizer.encode(&text, SpecialTokens::AsText);
        prop_assert_eq!(stream(&tokenizer, &ids, &stop), cut(&text, &stop));
    }
}
