//! The forward pass: embeddings, layers, one vector a sequence.

use std::ops::Range;

use motet_kernels::{
    Activations, FullAttention, Product, Sum, add_assign, add_bias_and_gelu, l2_normalize,
    layer_norm_in_place, matmul,
};
use motet_types::TokenId;

use super::weights::{LayerWeights, Linear, Norm};
use super::{Encoder, Pooling};

/// Rows of one batch. They keep their memory: a batch no larger than one before allocates little.
#[derive(Default)]
pub(super) struct Buffers {
    /// What goes from layer to layer.
    stream: Vec<f32>,
    /// What goes into products: the stream, or what attention gives.
    input: Activations,
    /// What goes into the feed-forward layer's second product.
    hidden: Activations,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
}

/// Computes sequences that were checked.
pub(super) fn run(encoder: &mut Encoder, sequences: &[&[TokenId]], out: &mut Vec<f32>) {
    let mut end = 0;
    let ranges = sequences.iter().map(|tokens| {
        let start = end;
        end += tokens.len();
        start..end
    });
    let ranges: Vec<Range<usize>> = ranges.collect();
    let mut buffers = std::mem::take(&mut encoder.buffers);
    let pass = Pass { encoder, rows: end, ranges: &ranges };
    pass.embed(sequences, &mut buffers);
    for layer in &encoder.weights.layers {
        pass.attention(layer, &mut buffers);
        pass.feed_forward(layer, &mut buffers);
    }
    pass.pool(&buffers.stream, out);
    encoder.buffers = buffers;
}

struct Pass<'a> {
    encoder: &'a Encoder,
    rows: usize,
    ranges: &'a [Range<usize>],
}

impl Pass<'_> {
    fn embed(&self, sequences: &[&[TokenId]], b: &mut Buffers) {
        let (weights, width) = (&self.encoder.weights, self.encoder.config.width);
        for buffer in [&mut b.stream, &mut b.query, &mut b.key, &mut b.value] {
            buffer.resize(self.rows * width, 0.0);
        }
        self.encoder.pool.for_rows(&mut b.stream, width, &|row, values| {
            let sequence = self.ranges.partition_point(|range| range.end <= row);
            let position = row - self.ranges[sequence].start;
            weights.words.row(sequences[sequence][position] as usize, values);
            add_assign(values, &weights.segment);
            add_assign(values, &weights.positions[position * width..][..width]);
        });
        self.norm(&weights.embedding_norm, None, b);
    }

    fn attention(&self, layer: &LayerWeights, b: &mut Buffers) {
        let Encoder { config, pool, isa, .. } = self.encoder;
        let mut products = [
            product(&layer.query, &mut b.query),
            product(&layer.key, &mut b.key),
            product(&layer.value, &mut b.value),
        ];
        matmul(pool, *isa, &b.input, &mut products);
        let biased = [(&layer.query, &mut b.query), (&layer.key, &mut b.key), (&layer.value, &mut b.value)];
        for (linear, rows) in biased {
            pool.for_rows(rows, config.width, &|_, row| add_assign(row, &linear.bias));
        }
        let head_dim = config.width / config.heads;
        let attention = FullAttention {
            query: &b.query,
            key: &b.key,
            value: &b.value,
            heads: config.heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
        };
        attention.run(pool, *isa, self.ranges, b.input.fill(self.rows, config.width));
        self.add_product(&layer.attention_output, &b.input, &mut b.stream);
        self.norm(&layer.attention_norm, Some(&layer.attention_output.bias), b);
    }

    fn feed_forward(&self, layer: &LayerWeights, b: &mut Buffers) {
        let Encoder { config, pool, isa, .. } = self.encoder;
        let hidden = b.hidden.fill(self.rows, config.feed_forward);
        matmul(pool, *isa, &b.input, &mut [product(&layer.up, hidden)]);
        // The same rows, as the product left them.
        pool.for_rows(b.hidden.fill(self.rows, config.feed_forward), config.feed_forward, &|_, row| {
            add_bias_and_gelu(*isa, config.activation, row, &layer.up.bias);
        });
        self.add_product(&layer.down, &b.hidden, &mut b.stream);
        self.norm(&layer.output_norm, Some(&layer.down.bias), b);
    }

    /// Adds a product to the stream, without its bias.
    fn add_product(&self, linear: &Linear, input: &Activations, stream: &mut [f32]) {
        let product = Product { weights: &linear.weight, out: stream, sum: Sum::Add };
        matmul(&self.encoder.pool, self.encoder.isa, input, &mut [product]);
    }

    /// Adds the bias of the product before, norms the stream, and makes it the input of the next product.
    fn norm(&self, norm: &Norm, bias: Option<&[f32]>, b: &mut Buffers) {
        let Encoder { config, pool, isa, .. } = self.encoder;
        let input = b.input.fill(self.rows, config.width);
        pool.for_row_pairs((&mut b.stream, input), (config.width, config.width), &|_, row, input| {
            if let Some(bias) = bias {
                add_assign(row, bias);
            }
            layer_norm_in_place(*isa, row, (&norm.weight, &norm.bias, config.norm_eps));
            input.copy_from_slice(row);
        });
    }

    /// One vector of length 1 for each sequence.
    fn pool(&self, stream: &[f32], out: &mut Vec<f32>) {
        let Encoder { config, isa, .. } = self.encoder;
        for range in self.ranges {
            let mut rows =
                stream[range.start * config.width..range.end * config.width].chunks_exact(config.width);
            let start = out.len();
            out.extend_from_slice(rows.next().unwrap_or_default());
            let vector = &mut out[start..];
            if config.pooling == Pooling::Mean {
                rows.for_each(|row| add_assign(vector, row));
                let count = range.len() as f32;
                vector.iter_mut().for_each(|value| *value /= count);
            }
            l2_normalize(*isa, vector);
        }
    }
}

fn product<'a>(linear: &'a Linear, out: &'a mut [f32]) -> Product<'a> {
    Product { weights: &linear.weight, out, sum: Sum::Replace }
}
