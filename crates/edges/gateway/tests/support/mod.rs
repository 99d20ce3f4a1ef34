//! A backend that plays a script, a tokenizer of single bytes, and a gateway around them.

// Each test crate uses a part, and helpers of tests may fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod client;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use futures_util::stream::unfold;
use motet_gateway::{Gateway, GatewayConfig, ServedModel};
use motet_text::{ChatTemplate, TokenKind, Tokenizer, TokenizerSpec};
use motet_types::{
    Backend, Event, EventStream, FinishReason, LaneLoad, Load, Logprobs, ModelInfo, ReplyError, Request,
    SamplingParams, SubmitError, TokenEvent, TokenId, Usage,
};

/// Name of the model in tests.
pub const MODEL: &str = "lab/tiny";
/// Opens a turn.
pub const IM_START: TokenId = 256;
/// Ends a turn.
pub const IM_END: TokenId = 257;
/// Tokens with a text. The output head is padded to [`PADDED_VOCAB`].
pub const VOCAB: u32 = 258;
/// Rows of the output head.
pub const PADDED_VOCAB: u32 = 272;
/// Tokens of the context.
pub const CONTEXT: u32 = 400;

/// Prompt tokens that the fake says it had cached.
pub const CACHED: u32 = 16;

const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'system' and m.content == 'refuse' %}\
    {{ raise_exception('no such system prompt') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// One thing a scripted reply does.
#[derive(Debug, Clone)]
pub enum Beat {
    /// Gives a token.
    Token(TokenId),
    /// Waits.
    Pause(Duration),
    /// Waits for ever.
    Hang,
    /// Fails.
    Fail(ReplyError),
    /// Ends without saying so.
    Vanish,
}

/// The tokens of a text: its bytes.
pub fn say(text: &str) -> Vec<Beat> {
    text.bytes().map(|byte| Beat::Token(u32::from(byte))).collect()
}

/// [`say`], then the end of the turn.
pub fn reply(text: &str) -> Vec<Beat> {
    [say(text), vec![Beat::Token(IM_END)]].concat()
}

type Script = Box<dyn Fn(&Request) -> Vec<Beat> + Send + Sync>;
type Refusal = Box<dyn Fn(&Request) -> Option<SubmitError> + Send + Sync>;

/// Plays scripts, one per sample, and counts the streams that are alive. A script sees the request as
/// if it had that sample alone.
pub struct Fake {
    info: ModelInfo,
    script: Script,
    refusal: Refusal,
    live: Arc<AtomicU32>,
    cancelled: Arc<AtomicU64>,
    /// What was submitted, in order.
    pub seen: Mutex<Vec<Request>>,
    /// What is reported besides the streams that are alive.
    pub load: Mutex<Load>,
    /// Whether its background lanes are paused.
    pub is_paused: AtomicBool,
}

impl Fake {
    pub fn new(script: impl Fn(&Request) -> Vec<Beat> + Send + Sync + 'static) -> Arc<Self> {
        Self::refusing(script, |_| None)
    }

    pub fn refusing(
        script: impl Fn(&Request) -> Vec<Beat> + Send + Sync + 'static,
        refusal: impl Fn(&Request) -> Option<SubmitError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            info: ModelInfo {
                id: MODEL.into(),
                context_length: CONTEXT,
                vocab_size: PADDED_VOCAB,
                eos_tokens: vec![IM_END],
            },
            script: Box::new(script),
            refusal: Box::new(refusal),
            live: Arc::default(),
            cancelled: Arc::default(),
            seen: Mutex::default(),
            is_paused: AtomicBool::new(false),
            load: Mutex::new(Load {
                kv_blocks_total: 64,
                kv_block_tokens: 16,
                lanes: ["main", "rest"]
                    .map(|name| LaneLoad { name: name.into(), ..LaneLoad::default() })
                    .into(),
                ..Load::default()
            }),
        })
    }

    /// Streams that are not dropped yet.
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::SeqCst)
    }

    /// The only request so far.
    pub fn only_request(&self) -> Request {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        seen[0].clone()
    }
}

/// Counts a stream while it is alive.
struct Guard {
    live: Arc<AtomicU32>,
    cancelled: Arc<AtomicU64>,
    has_ended: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
        if !self.has_ended {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Fake {
    fn play(&self, request: Request) -> EventStream {
        self.live.fetch_add(1, Ordering::SeqCst);
        let guard = Guard { live: self.live.clone(), cancelled: self.cancelled.clone(), has_ended: false };
        let player = Player { beats: (self.script)(&request).into_iter(), request, index: 0, guard };
        Box::pin(unfold(player, |mut player| async {
            let event = player.next().await?;
            Some((event, player))
        }))
    }
}

impl Backend for Fake {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn submit(&self, request: Request) -> Result<Vec<EventStream>, SubmitError> {
        if let Some(error) = (self.refusal)(&request) {
            return Err(error);
        }
        self.seen.lock().unwrap().push(request.clone());
        let alone = |sample: &SamplingParams| Request { samples: vec![*sample], ..request.clone() };
        Ok(request.samples.iter().map(|sample| self.play(alone(sample))).collect())
    }

    fn estimate(&self, _lane: usize, _prompt_tokens: u32) -> Duration {
        Duration::ZERO
    }

    fn load(&self) -> Load {
        Load {
            running: self.live(),
            kv_blocks_used: self.live() * 2,
            cancelled: self.cancelled.load(Ordering::SeqCst),
            ..self.load.lock().unwrap().clone()
        }
    }

    fn pause_background(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::SeqCst);
    }
}

struct Player {
    beats: std::vec::IntoIter<Beat>,
    request: Request,
    index: u32,
    guard: Guard,
}

impl Player {
    fn ends(&self, token: TokenId) -> bool {
        let stop = &self.request.stop;
        stop.ids.contains(&token) || (token == IM_END && !stop.ignore_eos)
    }

    async fn next(&mut self) -> Option<Event> {
        if self.guard.has_ended {
            return None;
        }
        let mut reason = FinishReason::Length;
        while self.index < self.request.max_tokens {
            match self.beats.next() {
                Some(Beat::Token(token)) if self.ends(token) => {
                    self.index += 1;
                    reason = FinishReason::StopToken(token);
                    break;
                }
                Some(Beat::Token(token)) => return Some(Event::Token(self.token(token))),
                Some(Beat::Pause(time)) => tokio::time::sleep(time).await,
                Some(Beat::Hang) => std::future::pending().await,
                Some(Beat::Fail(error)) => {
                    self.guard.has_ended = true;
                    return Some(Event::Failed(error));
                }
                Some(Beat::Vanish) => {
                    self.guard.has_ended = true;
                    return None;
                }
                None => break,
            }
        }
        self.guard.has_ended = true;
        let (prompt, output) = (self.request.prompt.len() as u32, self.index);
        let usage = Usage { prompt, cached: CACHED, output, queued: Duration::from_millis(7) };
        Some(Event::Finished { reason, usage })
    }

    fn token(&mut self, token: TokenId) -> TokenEvent {
        let index = self.index;
        self.index += 1;
        let rivals = |k: u8| (0..u32::from(k)).map(|i| (token ^ (i + 1), -1.5 - i as f32)).collect();
        // Digits have a log-probability, the lower the larger they are.
        let is_digit = u8::try_from(token).is_ok_and(|byte| byte.is_ascii_digit());
        let chosen = if is_digit { -(token as f32) } else { f32::NEG_INFINITY };
        let logprobs = self.request.logprobs.map(|k| Box::new(Logprobs { chosen, top: rivals(k) }));
        TokenEvent { index, token, logprobs }
    }
}

/// A byte-level tokenizer without merges: the tokens of a text are its bytes.
pub fn tokenizer() -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = (0..=255).map(|byte| byte_letter(byte).to_string()).collect();
    let mut kinds = vec![TokenKind::Normal; 256];
    for special in ["<|im_start|>", "<|im_end|>"] {
        tokens.push(special.into());
        kinds.push(TokenKind::Control);
    }
    let spec =
        TokenizerSpec { model: "gpt2".into(), tokens, kinds, eos: Some(IM_END), ..TokenizerSpec::default() };
    Arc::new(Tokenizer::new(spec).unwrap())
}

/// GPT-2's printable letter for a byte: itself where it is printable, else the next free one from U+0100.
fn byte_letter(byte: u8) -> char {
    let is_printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !is_printable(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap()
}

/// The configuration of tests: a still clock and counted ids.
pub fn config() -> GatewayConfig {
    let counter = AtomicU64::new(1);
    GatewayConfig {
        max_body_bytes: 1 << 20,
        keep_alive: Duration::from_secs(5),
        clock: Arc::new(|| UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        entropy: Arc::new(move || counter.fetch_add(1, Ordering::SeqCst)),
        ..GatewayConfig::default()
    }
}

/// The model of tests, served by `backend`.
pub fn served(backend: Arc<Fake>) -> ServedModel {
    served_as(MODEL, 0, backend)
}

/// A model of this name and size.
pub fn served_as(id: &str, weight_bytes: u64, backend: Arc<Fake>) -> ServedModel {
    ServedModel {
        id: id.into(),
        created: 1_600_000_000,
        tokenizer: tokenizer(),
        template: Some(Arc::new(ChatTemplate::new(TEMPLATE, "", "<|im_end|>").unwrap())),
        backend,
        weight_bytes,
    }
}

/// A gateway that is ready.
pub fn gateway(backend: &Arc<Fake>) -> Arc<Gateway> {
    let gateway = Gateway::new(config());
    gateway.set_ready(served(backend.clone()));
    gateway
}
