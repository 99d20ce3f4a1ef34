//! Just enough of GGUF to read a vocabulary; this crate sits below the one that reads models.

use motet_text::{TokenKind, Tokenizer, TokenizerSpec};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

enum Value {
    Number(i64),
    Float(f32),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    fn number(&self) -> i64 {
        if let Self::Number(n) = self { *n } else { panic!("not a number") }
    }

    fn float(&self) -> f32 {
        if let Self::Float(x) = self { *x } else { panic!("not a float") }
    }

    fn text(&self) -> &str {
        if let Self::Text(s) = self { s } else { panic!("not a string") }
    }

    fn list(&self) -> &[Value] {
        if let Self::List(items) = self { items } else { panic!("not an array") }
    }
}

struct Reader(BufReader<File>);

impl Reader {
    fn uint(&mut self, bytes: usize) -> u64 {
        let mut buffer = [0; 8];
        self.0.read_exact(&mut buffer[..bytes]).unwrap();
        u64::from_le_bytes(buffer)
    }

    fn text(&mut self) -> String {
        let mut bytes = vec![0; self.uint(8) as usize];
        self.0.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn value(&mut self, kind: u64) -> Value {
        match kind {
            0 | 1 | 7 => Value::Number(self.uint(1) as i64),
            2 | 3 => Value::Number(self.uint(2) as i64),
            4 | 5 => Value::Number(self.uint(4) as i64),
            6 => Value::Float(f32::from_bits(self.uint(4) as u32)),
            10..=12 => Value::Number(self.uint(8) as i64),
            8 => Value::Text(self.text()),
            9 => {
                let kind = self.uint(4);
                Value::List((0..self.uint(8)).map(|_| self.value(kind)).collect())
            }
            _ => panic!("metadata type {kind}"),
        }
    }
}

/// A model's tokenizer and chat template.
pub(crate) struct RealModel {
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Empty where it has none.
    pub(crate) template: String,
}

/// Reads the default model's once; `None` (and a message) where the model is not on this machine.
pub(crate) fn real_model() -> Option<&'static RealModel> {
    static MODEL: LazyLock<Option<RealModel>> =
        LazyLock::new(|| Some(read(&motet_testkit::default_model()?)));
    MODEL.as_ref()
}

/// The same of Gemma 3.
pub(crate) fn gemma3() -> Option<&'static RealModel> {
    static MODEL: LazyLock<Option<RealModel>> = LazyLock::new(|| Some(read(&motet_testkit::gemma3_model()?)));
    MODEL.as_ref()
}

fn read(path: &Path) -> RealModel {
    let mut reader = Reader(BufReader::new(File::open(path).unwrap()));
    assert_eq!((reader.uint(4) as u32).to_le_bytes(), *b"GGUF");
    let (_version, _tensors, count) = (reader.uint(4), reader.uint(8), reader.uint(8));
    let read = |_| {
        let (key, kind) = (reader.text(), reader.uint(4));
        (key, reader.value(kind))
    };
    model((0..count).map(read).collect())
}

fn model(metadata: HashMap<String, Value>) -> RealModel {
    let key = |name: &str| metadata.get(&format!("tokenizer.ggml.{name}"));
    let list = |name| key(name).map_or(&[][..], Value::list).iter();
    let texts = |name| list(name).map(|v| v.text().to_owned()).collect();
    let id = |name| key(name).map(|v| v.number() as u32);
    let flag = |name| key(name).is_some_and(|v| v.number() != 0);
    let kinds = list("token_type").map(|v| TokenKind::from_gguf(v.number()).unwrap());
    let spec = TokenizerSpec {
        model: key("model").unwrap().text().to_owned(),
        pre: key("pre").map(|v| v.text().to_owned()),
        tokens: texts("tokens"),
        kinds: kinds.collect(),
        merges: texts("merges"),
        scores: list("scores").map(Value::float).collect(),
        add_space_prefix: flag("add_space_prefix"),
        bos: id("bos_token_id"),
        eos: id("eos_token_id"),
        eot: id("eot_token_id"),
        unk: id("unknown_token_id"),
        pad: id("padding_token_id"),
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
    };
    RealModel {
        tokenizer: Arc::new(Tokenizer::new(spec).unwrap()),
        template: metadata.get("tokenizer.chat_template").map_or_else(String::new, |v| v.text().to_owned()),
    }
}
