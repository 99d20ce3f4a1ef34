//! Any bytes are either a model whose every tensor is readable, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use motet_model::gguf::{Gguf, chat_template, tokenizer_spec};

fuzz_target!(|bytes: &[u8]| {
    match Gguf::from_bytes("fuzz.gguf", bytes.to_vec()) {
        Ok(gguf) => read_everything(&gguf),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});

fn read_everything(gguf: &Gguf) {
    for info in gguf.tensors() {
        let tensor = gguf.tensor(info.name()).expect("a listed tensor is found");
        assert_eq!(tensor.data.len(), info.size());
        std::hint::black_box(tensor.data.iter().fold(0_u8, |sum, byte| sum ^ byte));
    }
    for (key, value) in gguf.metadata() {
        assert!(gguf.get(key).is_some());
        std::hint::black_box(value.to_string());
    }
    std::hint::black_box((tokenizer_spec(gguf).is_ok(), chat_template(gguf)));
}
