import { describe, expect, it } from "vitest";
import { definitions, extendBlocks, NO_BLOCKS, type Blocks } from "./blocks";

const TEXTS = [
  "",
  "one line",
  "# Title\n\ntext\nmore\n\n- a\n- b\n\n  under b\n\n1. x\n2. y\n\nend",
  "para\n---\n\nthen\n\n---\n\nafter",
  "```js\nlet a = 1;\n\n\nlet b;\n```\nafter\n\n~~~\nopen\n\nfence",
  "| a | b |\n|---|---|\n| 1 | 2 |\n\ntext\n\n> quote\nlazy\n\n> two",
  "- a\n\n\n- b\n  ```\n  code\n\n  more\n  ```\n- c\n\n    indented",
  "[r]: https://example.org\n\nsee [r]\n\n<div>\nhtml\n\n</div>\n",
  "a\r\nb\r\n\r\nc\rd",
  "    code by indent\n\n    more\n\ntext",
  "* a\n* b\n\n\n\n* c\n+ other\n\n\n",
];

/** A small deterministic generator, so that a failure repeats. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state / 0x7fffffff;
  };
}

describe("extendBlocks", () => {
  for (const text of TEXTS) {
    it(`joins to the text and doesn't depend on how it arrived: ${JSON.stringify(text.slice(0, 24))}`, () => {
      const whole = extendBlocks(NO_BLOCKS, text);
      expect(whole.raws.join("")).toBe(text.replace(/\r\n?/g, "\n"));
      for (let seed = 1; seed <= 40; seed += 1) {
        const next = random(seed);
        let blocks: Blocks = NO_BLOCKS;
        for (let at = 0; at < text.length;) {
          at = Math.min(text.length, at + 1 + Math.floor(next() * 6));
          blocks = extendBlocks(blocks, text.slice(0, at));
        }
        expect(blocks.raws).toEqual(whole.raws);
      }
    });
  }

  it("leaves the blocks above the last as they are", () => {
    const before = extendBlocks(NO_BLOCKS, "one\n\ntwo\n\nthr");
    const next = extendBlocks(before, "one\n\ntwo\n\nthree");
    expect(next.raws.slice(0, 2)).toEqual(before.raws.slice(0, 2));
    expect(next.raws.at(-1)).toBe("three");
  });

  it("starts over for another text", () => {
    expect(extendBlocks(extendBlocks(NO_BLOCKS, "one"), "two").raws).toEqual(["two"]);
  });

  it("finds link definitions", () => {
    expect(definitions(extendBlocks(NO_BLOCKS, "see [r]\n\n[r]: https://example.org\n"))).toContain("[r]:");
    expect(definitions(extendBlocks(NO_BLOCKS, "no [r]: here"))).toBe("");
  });
});
