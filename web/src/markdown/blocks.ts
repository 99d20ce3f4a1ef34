import { Lexer } from "marked";

/** A text cut into top-level markdown blocks: `raws` joined is `text` with `\n` line ends. */
export interface Blocks {
  text: string;
  raws: readonly string[];
}

export const NO_BLOCKS: Blocks = { text: "", raws: [] };

/**
 * The blocks of `text`. When it continues what `known` was made from, only the last block is read again, since
 * markdown that is appended can change no block before the last.
 */
export function extendBlocks(known: Blocks, text: string): Blocks {
  const clean = text.replace(/\r\n?/g, "\n");
  if (clean === known.text) return known;
  if (known.raws.length === 0 || !clean.startsWith(known.text))
    return { text: clean, raws: cutBlocks(clean) };
  const kept = known.raws.slice(0, -1);
  const tail = (known.raws.at(-1) ?? "") + clean.slice(known.text.length);
  return { text: clean, raws: [...kept, ...cutBlocks(tail)] };
}

/** Link reference definitions of a text, which any of its blocks may use. */
export function definitions(blocks: Blocks): string {
  return blocks.raws.filter((raw) => /^ {0,3}\[[^\]\n]+\]:/.test(raw)).join("\n");
}

function cutBlocks(source: string): string[] {
  const raws: string[] = [];
  let at = 0;
  for (const { type, raw } of new Lexer({ gfm: true }).blockTokens(source, [])) {
    // The lexer's raw isn't always the source (it ends an empty last list item with a line break of its own): from
    // there on, the rest stays one block.
    if (!source.startsWith(raw, at)) break;
    at += raw.length;
    // Blank lines belong to the block above: whether an indented line continues a list depends on them.
    if (type === "space" && raws.length > 0) raws[raws.length - 1] += raw;
    else raws.push(raw);
  }
  if (at < source.length) raws.push(source.slice(at));
  return raws;
}
