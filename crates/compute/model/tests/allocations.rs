//! A step that is no larger than one before it allocates nothing, in any thread.
#![allow(clippy::unwrap_used, unsafe_code)]

#[path = "../../kernels/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision};
use motet_sched::{Chunk, Executor, StepOutput, StepPlan};
use motet_testkit::{TinyModel, WeightType, tiny_model_file};
use motet_types::SequenceId;

/// Tokens of `sequence` from `start` on.
fn chunk(sequence: u64, start: usize, len: usize) -> Chunk {
    Chunk {
        sequence: SequenceId(sequence),
        siblings: Vec::new(),
        tokens: (start..start + len).map(|i| 3 + (i as u32 * 7 + sequence as u32) % 50).collect(),
        start: start as u32,
        stored: start as u32,
        tables: vec![(0..(start + len).div_ceil(16) as u32).map(|b| sequence as u32 * 8 + b).collect()],
        wants_logits: true,
    }
}

/// A mixed step: sequences that decode beside one whose prompt is computed.
fn step(position: usize) -> StepPlan {
    let decodes = (0..6).map(|sequence| chunk(sequence, position, 1));
    StepPlan { chunks: decodes.chain([chunk(6, 0, 40)]).collect(), ..StepPlan::default() }
}

#[test]
fn a_steady_step_allocates_nothing() {
    for isa in Isa::available() {
        for weights in [WeightType::Q4_1, WeightType::Q8_0, WeightType::F16] {
            let file = tiny_model_file(&TinyModel { weights, ..TinyModel::default() });
            let options = CpuOptions {
                threads: 2,
                kv_bytes: 1 << 20,
                precision: Precision::Fast,
                kv: KvFormat::F16,
                isa,
            };
            let mut model = CpuExecutor::load(&Gguf::open(&file.path()).unwrap(), options).unwrap();
            let mut output = StepOutput::default();
            let steps: Vec<StepPlan> = (60..76).map(step).collect();
            let prompts = (0..7).map(|sequence| chunk(sequence, 0, 60)).collect();
            model.execute(&StepPlan { chunks: prompts, ..StepPlan::default() }, &mut output).unwrap();
            // Each thread makes its own scratch when it first takes part, which may be late.
            let mut counts = Vec::new();
            for _ in 0..6 {
                let before = allocations();
                steps.iter().for_each(|step| model.execute(step, &mut output).unwrap());
                counts.push(allocations() - before);
            }
            assert_eq!(counts.last(), Some(&0), "{isa:?} {weights:?}: {counts:?}");
        }
    }
}
