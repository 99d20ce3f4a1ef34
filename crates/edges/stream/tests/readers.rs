//! Readers that wait, and a writer that does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Instant;

use bytes::Bytes;
use motet_stream::{Begun, CHUNK_OVERHEAD, LogLimits, ReadError, Reader, ReplyLogs, Writer};

fn begin(logs: &ReplyLogs<()>, name: &str) -> (Option<Writer<()>>, Reader<()>) {
    match logs.begin(name, (), Instant::now()).unwrap() {
        Begun::New(writer, reader) => (Some(writer), reader),
        Begun::Known(reader, ()) => (None, reader),
    }
}

async fn all(mut reader: Reader<()>) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.next().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[tokio::test]
async fn readers_wake_and_get_the_same_bytes() {
    let logs = ReplyLogs::new(LogLimits::default());
    let (writer, first) = begin(&logs, "a");
    let mut writer = writer.unwrap();
    let mut readers = vec![tokio::spawn(all(first))];
    let mut expected = Vec::new();
    for round in 0..100u8 {
        readers.push(tokio::spawn(all(begin(&logs, "a").1)));
        tokio::task::yield_now().await;
        writer.append(Bytes::from(vec![round; 3]));
        expected.extend([round; 3]);
    }
    writer.end(Instant::now());
    readers.push(tokio::spawn(all(begin(&logs, "a").1)));
    for reader in readers {
        assert_eq!(reader.await.unwrap().unwrap(), expected);
    }
    assert_eq!((logs.len(), logs.bytes()), (1, 300 + 100 * CHUNK_OVERHEAD));
}

#[tokio::test]
async fn a_reader_that_waits_hears_that_the_writer_left() {
    let logs = ReplyLogs::new(LogLimits::default());
    let (writer, first) = begin(&logs, "a");
    let reader = tokio::spawn(all(first));
    tokio::task::yield_now().await;
    drop(writer);
    assert_eq!(reader.await.unwrap(), Err(ReadError::Broken));
    assert!(logs.is_empty());
    assert!(begin(&logs, "a").0.is_some(), "the name is free again");
}

#[tokio::test]
async fn a_slow_reader_is_told_that_it_missed_something() {
    let limits = LogLimits { reply_bytes: 10 * (CHUNK_OVERHEAD + 10), ..LogLimits::default() };
    let logs = ReplyLogs::new(limits);
    let (writer, mut quick) = begin(&logs, "a");
    let (mut writer, slow) = (writer.unwrap(), begin(&logs, "a").1);
    for round in 0..100u8 {
        writer.append(Bytes::from(vec![round; 10]));
        assert_eq!(quick.next().await.unwrap().unwrap()[0], round);
    }
    writer.end(Instant::now());
    assert_eq!(quick.next().await, Ok(None));
    assert!(!slow.is_whole());
    assert_eq!(all(slow).await, Err(ReadError::Trimmed));
    assert_eq!(logs.bytes(), limits.reply_bytes);
}
