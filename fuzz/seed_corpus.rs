//! Writes small sound models into `corpus/gguf_open`, one per weight type.

use std::path::Path;

use motet_testkit::{TinyModel, WeightType, tiny_model};

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/gguf_open");
    std::fs::create_dir_all(&folder)?;
    for weights in WeightType::ALL {
        let model = tiny_model(&TinyModel { weights, layers: 1, ..TinyModel::default() });
        std::fs::write(folder.join(format!("tiny_{weights:?}.gguf")), model)?;
    }
    Ok(())
}
