//! The forward pass: embeddings, layers, logits.

use motet_kernels::attention::{Attention, AttentionScratch, Span};
use motet_kernels::kv::{KvArena, KvRows};
use motet_kernels::{
    Activations, Isa, PackedMatrix, Product, Sum, ThreadPool, add_assign, gated, matmul, rms_norm,
    rms_norm_in_place, rope,
};
use motet_types::TokenId;

use crate::config::ModelConfig;
use crate::weights::{LayerWeights, Weights};

/// A loaded model without its KV arenas.
pub(crate) struct Decoder {
    pub(crate) config: ModelConfig,
    pub(crate) weights: Weights,
    pub(crate) pool: ThreadPool,
    pub(crate) isa: Isa,
    /// Of every layer, the group whose block tables it uses.
    layer_groups: Vec<usize>,
    buffers: Buffers,
}

/// The sequences of a step: their rows and positions, and below which position each has its keys and
/// values already.
#[derive(Clone, Copy)]
pub(crate) struct Spans<'a> {
    /// The same spans for every group of layers, with the group's blocks.
    pub(crate) groups: &'a [Vec<Span<'a>>],
    pub(crate) stored: &'a [usize],
}

/// Rows of one step. They keep their memory from step to step: a step no larger than one before allocates
/// nothing.
#[derive(Default)]
struct Buffers {
    /// The residual stream.
    stream: Vec<f32>,
    /// What a layer adds to it, where that is normed first.
    update: Vec<f32>,
    /// What goes into a layer's halves.
    input: Activations,
    /// What goes into the feed-forward layer's second product.
    gated: Activations,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    scratch: AttentionScratch,
    /// For every rotary table, the angles of every row.
    angles: Vec<Vec<(f32, f32)>>,
}

impl Decoder {
    pub(crate) fn new(config: ModelConfig, weights: Weights, pool: ThreadPool, isa: Isa) -> Self {
        let mut layer_groups = vec![0; config.layers.len()];
        for (index, group) in config.groups().iter().enumerate() {
            group.layers.iter().for_each(|layer| layer_groups[*layer] = index);
        }
        Self { config, weights, pool, isa, layer_groups, buffers: Buffers::default() }
    }

    /// Runs `tokens` (the spans' rows one after the other) through all layers and leaves in `logits` those of
    /// the rows in `wanted`.
    ///
    /// `arenas` holds one KV arena per layer. Ids and positions were checked by the caller.
    pub(crate) fn forward(
        &mut self,
        tokens: &[TokenId],
        spans: Spans<'_>,
        arenas: &mut [KvArena],
        (wanted, logits): (&[usize], &mut Vec<f32>),
    ) {
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.resize(&self.config, tokens.len());
        self.embed(tokens, &mut buffers);
        self.turn(spans, tokens.len(), &mut buffers);
        for (layer, arena) in arenas.iter_mut().enumerate() {
            self.attention(layer, arena, spans, &mut buffers);
            self.feed_forward(&self.weights.layers[layer], &mut buffers);
        }
        self.head(&mut buffers, wanted, logits);
        self.buffers = buffers;
    }

    fn embed(&self, tokens: &[TokenId], b: &mut Buffers) {
        let scale = self.config.embedding_scale;
        self.pool.for_rows(&mut b.stream, self.config.embedding, &|row, values| {
            self.weights.embedding.row(tokens[row] as usize, values);
            values.iter_mut().for_each(|value| *value *= scale);
        });
    }

    /// The rotary angles of every row.
    fn turn(&self, spans: Spans<'_>, rows: usize, b: &mut Buffers) {
        b.angles.resize_with(self.weights.ropes.len(), Vec::new);
        let spans = spans.groups.first().map_or(&[][..], Vec::as_slice);
        for (table, angles) in self.weights.ropes.iter().zip(&mut b.angles) {
            angles.resize(rows * table.pairs(), (0.0, 0.0));
            self.pool.for_rows(angles, table.pairs(), &|row, angles| {
                let span = &spans[spans.partition_point(|span| span.first_row <= row) - 1];
                table.angles(span.start + row - span.first_row, angles);
            });
        }
    }

    fn attention(&self, layer: usize, arena: &mut KvArena, spans: Spans<'_>, b: &mut Buffers) {
        let ModelConfig { heads, head_dim, attention_scale, .. } = self.config;
        let (weights, config) = (&self.weights.layers[layer], &self.config.layers[layer]);
        let rows = b.rows(&self.config);
        self.norm(rows, |row| row, &weights.attention_norm, (&b.stream, &mut b.input));
        self.multiply(
            &b.input,
            [
                product(&weights.query, &mut b.query),
                product(&weights.key, &mut b.key),
                product(&weights.value, &mut b.value),
            ],
        );
        self.place(layer, b);
        let (spans, stored) = (&spans.groups[self.layer_groups[layer]], spans.stored);
        arena.write(&self.pool, self.isa, KvRows { keys: &b.key, values: &b.value, spans, stored });
        let attention =
            Attention { window: config.window, ..Attention::new(arena, attention_scale, &b.query, spans) };
        attention.run(&self.pool, self.isa, &mut b.scratch, b.input.fill(rows, heads * head_dim));
        b.input.quantize(&self.pool, self.isa);
        let norm = weights.post_attention_norm.as_deref();
        self.add_product(&b.input, &weights.attention_output, norm, (&mut b.stream, &mut b.update));
    }

    /// Norms every head of queries and keys where the model does, and turns it by its row's position.
    fn place(&self, layer: usize, b: &mut Buffers) {
        let ModelConfig { head_dim, norm_eps, rope_order, .. } = self.config;
        let table = self.config.layers[layer].rope;
        let (angles, pairs) = (&b.angles[table], self.weights.ropes[table].pairs());
        let norms = self.weights.layers[layer].head_norms.as_ref();
        let place = |i: usize, norm: Option<&[f32]>, row: &mut [f32]| {
            if let Some(weight) = norm {
                row.chunks_exact_mut(head_dim)
                    .for_each(|head| rms_norm_in_place(self.isa, head, (weight, norm_eps)));
            }
            rope(self.isa, rope_order, (&angles[i * pairs..][..pairs], head_dim), row);
        };
        let rows = angles.len() / pairs;
        let widths = (b.query.len() / rows, b.key.len() / rows);
        self.pool.for_row_pairs((&mut b.query, &mut b.key), widths, &|i, query, key| {
            place(i, norms.map(|norms| &norms.query[..]), query);
            place(i, norms.map(|norms| &norms.key[..]), key);
        });
    }

    fn feed_forward(&self, weights: &LayerWeights, b: &mut Buffers) {
        self.norm(b.rows(&self.config), |row| row, &weights.feed_forward_norm, (&b.stream, &mut b.input));
        let matrices = (self.config.activation, &weights.gate, &weights.up, &weights.down);
        gated(&self.pool, self.isa, &b.input, matrices, &mut b.gated);
        let norm = weights.post_feed_forward_norm.as_deref();
        self.add_product(&b.gated, &weights.down, norm, (&mut b.stream, &mut b.update));
    }

    /// Adds a product to the residual stream, normed where the model does.
    fn add_product(
        &self,
        input: &Activations,
        weights: &PackedMatrix,
        norm: Option<&[f32]>,
        (stream, update): (&mut [f32], &mut [f32]),
    ) {
        let Some(norm) = norm else {
            return self.multiply(input, [Product { weights, out: stream, sum: Sum::Add }]);
        };
        self.multiply(input, [product(weights, update)]);
        self.pool.for_row_pairs((stream, update), (norm.len(), norm.len()), &|_, stream, update| {
            rms_norm_in_place(self.isa, update, (norm, self.config.norm_eps));
            add_assign(stream, update);
        });
    }

    fn head(&self, b: &mut Buffers, wanted: &[usize], logits: &mut Vec<f32>) {
        let head = self.weights.head();
        logits.resize(wanted.len() * head.rows(), 0.0);
        if !wanted.is_empty() {
            let rows = |i: usize| wanted[i];
            self.norm(wanted.len(), rows, &self.weights.output_norm, (&b.stream, &mut b.input));
            self.multiply(&b.input, [product(head, logits)]);
        }
    }

    /// Norms `count` rows, the i-th being `row(i)` of `source`, into the input of a product.
    fn norm(
        &self,
        count: usize,
        row: impl Fn(usize) -> usize + Sync,
        weight: &[f32],
        (source, input): (&[f32], &mut Activations),
    ) {
        let width = weight.len();
        input.fill_with(&self.pool, self.isa, (count, width), &|i, out| {
            rms_norm(self.isa, &source[row(i) * width..][..width], (weight, self.config.norm_eps), out);
        });
    }

    fn multiply<const N: usize>(&self, input: &Activations, mut products: [Product<'_>; N]) {
        matmul(&self.pool, self.isa, input, &mut products);
    }
}

fn product<'a>(weights: &'a PackedMatrix, out: &'a mut [f32]) -> Product<'a> {
    Product { weights, out, sum: Sum::Replace }
}

impl Buffers {
    fn resize(&mut self, config: &ModelConfig, rows: usize) {
        let resize = |buffer: &mut Vec<f32>, width: usize| buffer.resize(rows * width, 0.0);
        resize(&mut self.stream, config.embedding);
        resize(&mut self.update, config.embedding);
        resize(&mut self.query, config.heads * config.head_dim);
        resize(&mut self.key, config.kv_heads * config.head_dim);
        resize(&mut self.value, config.kv_heads * config.head_dim);
    }

    fn rows(&self, config: &ModelConfig) -> usize {
        self.stream.len() / config.embedding
    }
}
