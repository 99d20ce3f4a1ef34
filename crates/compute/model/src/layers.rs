//! The forward pass: embeddings, layers, logits.

use motet_kernels::attention::{Attention, Span};
use motet_kernels::kv::{KvArena, KvRows};
use motet_kernels::{
    Activations, Isa, PackedMatrix, Product, RopeFrequencies, ThreadPool, add_assign, matmul, rms_norm, rope,
    silu_mul,
};
use motet_types::TokenId;

use crate::LlamaConfig;
use crate::weights::{LayerWeights, Weights};

/// A loaded model without its KV arena.
pub(crate) struct Llama {
    pub(crate) config: LlamaConfig,
    pub(crate) weights: Weights,
    pub(crate) rope: RopeFrequencies,
    pub(crate) pool: ThreadPool,
    pub(crate) isa: Isa,
    buffers: Buffers,
}

/// The sequences of a step: their rows and positions, and below which position each has its keys and
/// values already.
#[derive(Clone, Copy)]
pub(crate) struct Spans<'a> {
    pub(crate) all: &'a [Span<'a>],
    pub(crate) stored: &'a [usize],
}

/// Rows of one step, kept between steps so that a step allocates little.
#[derive(Default)]
struct Buffers {
    /// The residual stream.
    stream: Vec<f32>,
    /// What a layer adds to it.
    update: Vec<f32>,
    input: Activations,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    /// Rotary angles of every row, the same for all layers.
    angles: Vec<(f32, f32)>,
}

impl Llama {
    pub(crate) fn new(config: LlamaConfig, weights: Weights, pool: ThreadPool, isa: Isa) -> Self {
        let rope = RopeFrequencies::new(config.rope_base, &weights.rope_divisors);
        Self { config, weights, rope, pool, isa, buffers: Buffers::default() }
    }

    /// Runs `tokens` (the spans' rows one after the other) through all layers and returns the logits
    /// of the rows in `wanted`.
    ///
    /// `arenas` holds one KV arena per layer. Ids and positions were checked by the caller.
    pub(crate) fn forward(
        &mut self,
        tokens: &[TokenId],
        spans: Spans<'_>,
        arenas: &mut [KvArena],
        wanted: &[usize],
    ) -> Vec<f32> {
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.resize(&self.config, tokens.len());
        let width = self.config.embedding;
        self.pool.for_rows(&mut buffers.stream, width, &|row, values| {
            self.weights.embedding.row(tokens[row] as usize, values);
        });
        buffers.angles.resize(tokens.len() * self.rope.pairs(), (0.0, 0.0));
        for span in spans.all {
            let rows = buffers.angles.chunks_exact_mut(self.rope.pairs()).skip(span.first_row).take(span.len);
            rows.enumerate().for_each(|(i, row)| self.rope.angles(span.start + i, row));
        }
        for (layer, arena) in self.weights.layers.iter().zip(arenas) {
            self.attention(layer, arena, spans, &mut buffers);
            self.feed_forward(layer, &mut buffers);
        }
        let logits = self.head(&mut buffers, wanted);
        self.buffers = buffers;
        logits
    }

    fn attention(&self, layer: &LayerWeights, arena: &mut KvArena, spans: Spans<'_>, b: &mut Buffers) {
        let LlamaConfig { heads, head_dim, .. } = self.config;
        self.norm(&b.stream, &layer.attention_norm, &mut b.input);
        let products = [(&layer.query, &mut b.query), (&layer.key, &mut b.key), (&layer.value, &mut b.value)];
        self.multiply(&b.input, products);
        let (angles, pairs) = (&b.angles, self.rope.pairs());
        for (rows, width) in [(&mut b.query, layer.query.rows()), (&mut b.key, layer.key.rows())] {
            let rotate = |i: usize, row: &mut [f32]| rope(&angles[i * pairs..][..pairs], head_dim, row);
            self.pool.for_rows(rows, width, &rotate);
        }
        for (span, stored) in spans.all.iter().zip(spans.stored) {
            arena.write(span, *stored, KvRows { keys: &b.key, values: &b.value });
        }
        let scale = 1.0 / (head_dim as f32).sqrt();
        let attention = Attention { arena, scale, queries: &b.query, spans: spans.all };
        let rows = b.query.len() / (heads * head_dim);
        attention.run(&self.pool, self.isa, b.input.fill(rows, heads * head_dim));
        b.input.quantize(&self.pool, self.isa);
        self.multiply(&b.input, [(&layer.attention_output, &mut b.update)]);
        add_assign(&mut b.stream, &b.update);
    }

    fn feed_forward(&self, layer: &LayerWeights, b: &mut Buffers) {
        self.norm(&b.stream, &layer.feed_forward_norm, &mut b.input);
        self.multiply(&b.input, [(&layer.gate, &mut b.gate), (&layer.up, &mut b.up)]);
        let width = self.config.feed_forward;
        let (gate, up) = (&b.gate, &b.up);
        self.pool.for_rows(b.input.fill(gate.len() / width, width), width, &|row, out| {
            silu_mul(self.isa, &gate[row * width..][..width], &up[row * width..][..width], out);
        });
        b.input.quantize(&self.pool, self.isa);
        self.multiply(&b.input, [(&layer.down, &mut b.update)]);
        add_assign(&mut b.stream, &b.update);
    }

    fn head(&self, b: &mut Buffers, wanted: &[usize]) -> Vec<f32> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let width = self.config.embedding;
        let rows: Vec<f32> =
            wanted.iter().flat_map(|row| &b.stream[row * width..][..width]).copied().collect();
        self.norm(&rows, &self.weights.output_norm, &mut b.input);
        let head = self.weights.head();
        let mut logits = vec![0f32; wanted.len() * head.rows()];
        self.multiply(&b.input, [(head, &mut logits)]);
        logits
    }

    /// Norms every row into `out`, ready for a matmul.
    fn norm(&self, rows: &[f32], weight: &[f32], out: &mut Activations) {
        let width = weight.len();
        self.pool.for_rows(out.fill(rows.len() / width, width), width, &|row, out| {
            rms_norm(self.isa, &rows[row * width..][..width], (weight, self.config.norm_eps), out);
        });
        out.quantize(&self.pool, self.isa);
    }

    fn multiply<const N: usize>(&self, input: &Activations, products: [(&PackedMatrix, &mut Vec<f32>); N]) {
        let mut products = products.map(|(weights, out)| Product { weights, out });
        matmul(&self.pool, self.isa, input, &mut products);
    }
}

impl Buffers {
    fn resize(&mut self, config: &LlamaConfig, rows: usize) {
        let resize = |buffer: &mut Vec<f32>, width: usize| buffer.resize(rows * width, 0.0);
        resize(&mut self.stream, config.embedding);
        resize(&mut self.update, config.embedding);
        resize(&mut self.query, config.heads * config.head_dim);
        resize(&mut self.key, config.kv_heads * config.head_dim);
        resize(&mut self.value, config.kv_heads * config.head_dim);
        resize(&mut self.gate, config.feed_forward);
        resize(&mut self.up, config.feed_forward);
    }
}
