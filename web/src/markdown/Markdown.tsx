import { marked } from "marked";
import remend from "remend";
import { memo, useState } from "react";
import { definitions, extendBlocks, NO_BLOCKS } from "./blocks";
import { renderTokens } from "./tokens";

/** A longer block is shown as it was typed: parsing it on each frame, or at all, could freeze the page. */
const MAX_PARSED = 50_000;

const FENCE = /^ {0,3}(?:`{3}|~{3})/;

interface Props {
  text: string;
  /** The text is still being written. */
  isOpen: boolean;
}

/** Markdown that may grow. Only the last block is parsed again; those above it are drawn once. */
export const Markdown = memo(function Markdown({ text, isOpen }: Props) {
  const [blocks, setBlocks] = useState(() => extendBlocks(NO_BLOCKS, text));
  const current = extendBlocks(blocks, text);
  if (current !== blocks) setBlocks(current);
  const links = definitions(current);
  const last = current.raws.length - 1;
  return (
    <div className="prose">
      {current.raws.map((raw, index) => (
        <Block key={index} raw={raw} links={links} isOpen={isOpen && index === last} />
      ))}
    </div>
  );
});

const Block = memo(function Block({ raw, links, isOpen }: { raw: string; links: string; isOpen: boolean }) {
  if (raw.length > MAX_PARSED) return <p className="as-typed">{raw}</p>;
  const isFence = FENCE.test(raw);
  const source = isOpen && !isFence ? complete(raw) : raw;
  const needsLinks = links !== "" && !isFence;
  const tokens = marked.lexer(needsLinks ? `${source}\n\n${links}` : source, { gfm: true });
  return <>{renderTokens(tokens, { isOpen })}</>;
});

/** Closes what a half-written block leaves open, so that `**bo` is bold already. Nothing that the end would undo. */
function complete(raw: string): string {
  return remend(raw, {
    linkMode: "text-only",
    images: false,
    htmlTags: false,
    comparisonOperators: false,
    singleTilde: false,
    katex: false,
  });
}
