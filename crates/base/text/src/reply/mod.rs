//! Generated tokens to text deltas.
//!
//! Two filters in a row: [`utf8`] holds back a character that ends in a later token, [`stop`] holds back
//! what may become a stop string. The deltas together are the lossy decoding of all bytes up to the
//! first stop string, however the text was cut into tokens, so a streamed reply and one that is sent
//! whole are the same.

mod stop;
mod utf8;

use crate::Tokenizer;
use motet_types::TokenId;
use std::sync::Arc;
use stop::StopMatcher;
use utf8::Utf8Stream;

/// What one token adds to a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delta {
    /// Text to show now; often empty.
    pub text: String,
    /// A stop string is complete: `text` is what came before it, and nothing follows.
    pub stopped: bool,
}

/// Turns the tokens of one reply into text.
pub struct ReplyDecoder {
    tokenizer: Arc<Tokenizer>,
    utf8: Utf8Stream,
    stop: StopMatcher,
}

impl ReplyDecoder {
    /// A decoder for one reply that ends at the first of the `stop` strings. Empty ones never match.
    ///
    /// A token costs time proportional to its bytes times the number of stop strings; whoever takes them
    /// from a caller bounds their number.
    pub fn new(tokenizer: Arc<Tokenizer>, stop: Vec<String>) -> Self {
        Self { tokenizer, utf8: Utf8Stream::default(), stop: StopMatcher::new(stop) }
    }

    /// Takes the next token. Control tokens add no text; after a stop nothing does.
    pub fn push(&mut self, token: TokenId) -> Delta {
        if self.stop.is_stopped() || self.tokenizer.is_control(token) {
            return Delta { text: String::new(), stopped: self.stop.is_stopped() };
        }
        let text = self.utf8.push(self.tokenizer.token_bytes(token));
        let text = self.stop.push(&text);
        Delta { text, stopped: self.stop.is_stopped() }
    }

    /// The text still held back, once no more tokens come; an unfinished character becomes U+FFFD, and
    /// with it a stop string may be complete.
    pub fn finish(&mut self) -> Delta {
        let tail = self.utf8.finish();
        let mut text = self.stop.push(&tail);
        text += &self.stop.finish();
        Delta { text, stopped: self.stop.is_stopped() }
    }
}
