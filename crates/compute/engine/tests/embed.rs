//! The embedder around an encoder: the right vectors to the right requests, bounds, and every kind of end.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::mpsc;
use std::time::Duration;

use futures_util::FutureExt;
use motet_engine::{EmbedConfig, EmbedEngine, Encode};
use motet_model::Isa;
use motet_model::encoder::Encoder;
use motet_testkit::TinyBert;
use motet_types::{EmbedError, Embedder, EmbedderInfo, TokenId};

const INFO: EmbedderInfo = EmbedderInfo { dimensions: 2, context_length: 9, vocab_size: 50 };

/// Gives (first token, number of tokens) as an input's vector.
fn first_and_count() -> Encode {
    Box::new(|sequences, out| {
        sequences.iter().for_each(|tokens| out.extend([tokens[0] as f32, tokens.len() as f32]));
        Ok(())
    })
}

fn start(encode: Encode, config: EmbedConfig) -> std::sync::Arc<EmbedEngine> {
    EmbedEngine::start(INFO, encode, config).unwrap()
}

#[tokio::test]
async fn each_input_gets_its_vector() {
    let engine = start(first_and_count(), EmbedConfig { batch_tokens: 7, max_waiting_tokens: 1000 });
    let requests: Vec<Vec<Vec<TokenId>>> = (0..12)
        .map(|r: u32| (0..=r).map(|i| vec![r * 3 + i; 1 + (i as usize * 5 + r as usize) % 9]).collect())
        .collect();
    let futures: Vec<_> = requests.iter().map(|inputs| engine.embed(inputs.clone()).unwrap()).collect();
    for (inputs, future) in requests.iter().zip(futures) {
        let want: Vec<Vec<f32>> =
            inputs.iter().map(|input| vec![input[0] as f32, input.len() as f32]).collect();
        assert_eq!(future.await.unwrap(), want);
    }
    let load = engine.load();
    let tokens: usize = requests.iter().flatten().map(Vec::len).sum();
    assert_eq!((load.inputs, load.tokens, load.requests, load.waiting_tokens), (78, tokens as u64, 0, 0));
    assert!(load.batches >= tokens as u64 / 9, "{load:?}");
}

#[tokio::test]
async fn what_can_not_be_is_refused() {
    let engine = start(first_and_count(), EmbedConfig::default());
    let check = |inputs: Vec<Vec<TokenId>>, want: EmbedError| {
        assert_eq!(engine.embed(inputs).err(), Some(want));
    };
    check(vec![], EmbedError::Empty(0));
    check(vec![vec![1], vec![]], EmbedError::Empty(1));
    check(vec![vec![1; 10]], EmbedError::TooLong { index: 0, tokens: 10, limit: 9 });
    check(vec![vec![1, 50]], EmbedError::UnknownToken { index: 0, token: 50, vocab_size: 50 });
    engine.drain();
    check(vec![vec![1]], EmbedError::Draining);
}

#[tokio::test]
async fn a_full_line_and_those_who_leave() {
    let (release, gate) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel::<usize>();
    let encode: Encode = Box::new(move |sequences, out| {
        begun.send(sequences.len()).unwrap();
        let _ = gate.recv();
        sequences.iter().for_each(|tokens| out.extend([tokens[0] as f32, 0.0]));
        Ok(())
    });
    let engine = start(encode, EmbedConfig { batch_tokens: 4, max_waiting_tokens: 10 });
    let first = engine.embed(vec![vec![1; 4]]).unwrap();
    assert_eq!(begins.recv().unwrap(), 1);
    let leaves = engine.embed(vec![vec![2; 4], vec![3; 2]]).unwrap();
    let stays = engine.embed(vec![vec![4; 3]]).unwrap();
    let full = engine.embed(vec![vec![5; 2]]).err();
    assert_eq!(full, Some(EmbedError::QueueFull { waiting_tokens: 9, retry_after_seconds: 5 }));
    assert_eq!(engine.load().requests, 3);
    drop(leaves);
    (0..3).for_each(|_| release.send(()).unwrap());
    assert_eq!(first.await, Ok(vec![vec![1.0, 0.0]]));
    assert_eq!(stays.await, Ok(vec![vec![4.0, 0.0]]));
    assert_eq!(begins.recv_timeout(Duration::from_secs(60)), Ok(1), "the one that stays");
    assert!(begins.try_recv().is_err());
    assert_eq!(engine.load().tokens, 7);
}

#[tokio::test]
async fn ends_that_are_no_vectors() {
    // One that is not finite concerns its own request only.
    let broken: Encode = Box::new(|sequences, out| {
        sequences.iter().for_each(|tokens| out.extend([if tokens[0] == 1 { f32::NAN } else { 0.0 }, 1.0]));
        Ok(())
    });
    let engine = start(broken, EmbedConfig::default());
    let (bad, good) = (engine.embed(vec![vec![2], vec![1]]).unwrap(), engine.embed(vec![vec![2]]).unwrap());
    assert_eq!(bad.await, Err(EmbedError::NotFinite));
    assert_eq!(good.await, Ok(vec![vec![0.0, 1.0]]));
    // An encoder that fails, that gives too little, and one that panics.
    let failing = start(Box::new(|_, _| Err("no memory".into())), EmbedConfig::default());
    assert_eq!(failing.embed(vec![vec![1]]).unwrap().await, Err(EmbedError::Down("no memory".into())));
    let short = start(Box::new(|_, _| Ok(())), EmbedConfig::default());
    assert!(
        matches!(short.embed(vec![vec![1]]).unwrap().await, Err(EmbedError::Down(why)) if why.contains("0 numbers"))
    );
    let panicking = start(Box::new(|_, _| panic!("for the test")), EmbedConfig::default());
    assert!(matches!(panicking.embed(vec![vec![1]]).unwrap().await, Err(EmbedError::Down(_))));
    assert!(matches!(panicking.embed(vec![vec![1]]), Err(EmbedError::Down(_))));
    // What still waits when the embedder goes.
    let (_held, gate) = mpsc::channel::<()>();
    let stuck: Encode = Box::new(move |sequences, out| {
        let _ = gate.recv_timeout(Duration::from_millis(50));
        out.resize(sequences.len() * 2, 0.0);
        Ok(())
    });
    let engine = start(stuck, EmbedConfig { batch_tokens: 1, ..EmbedConfig::default() });
    let waits = engine.embed(vec![vec![1]; 1000]).unwrap();
    drop(engine);
    assert!(matches!(waits.now_or_never(), Some(Err(EmbedError::Down(_)))));
}

/// Contract 1 through the queue: the tiny model's vectors in any company.
#[tokio::test]
async fn same_bits_alone_and_in_batches() {
    let folder = tempfile::tempdir().unwrap();
    TinyBert::default().write(folder.path());
    let start = |threads, batch_tokens| {
        let mut encoder = Encoder::load(folder.path(), threads, Isa::detect()).unwrap();
        let config = encoder.config();
        let info = EmbedderInfo {
            dimensions: config.width as u32,
            context_length: config.context_length as u32,
            vocab_size: config.vocab_size as u32,
        };
        let encode: Encode =
            Box::new(move |sequences, out| encoder.encode(sequences, out).map_err(|e| e.to_string()));
        EmbedEngine::start(info, encode, EmbedConfig { batch_tokens, ..EmbedConfig::default() }).unwrap()
    };
    let inputs: Vec<Vec<TokenId>> =
        (0..40u32).map(|i| (0..1 + i * 7 % 60).map(|t| 5 + (t * 3 + i) % 70).collect()).collect();
    let (alone, together) = (start(1, 1), start(3, 512));
    let futures: Vec<_> = inputs.chunks(7).map(|part| together.embed(part.to_vec()).unwrap()).collect();
    let mut all = Vec::new();
    for future in futures {
        all.extend(future.await.unwrap());
    }
    for (input, vector) in inputs.iter().zip(&all) {
        assert_eq!(&alone.embed(vec![input.clone()]).unwrap().await.unwrap()[0], vector);
    }
    assert!(together.load().batches < alone.load().batches);
}
