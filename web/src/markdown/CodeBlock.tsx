import { memo, useEffect, useState } from "react";
import { CopyButton } from "../ui/CopyButton";
import { showDirection } from "./safe";

/** Longer code stays plain: colouring it would hold up the page. */
const MAX_COLOURED = 30_000;

interface Props {
  code: string;
  language: string;
  /** More may be appended; colours wait until it's whole, so that each frame stays cheap. */
  isOpen: boolean;
}

/** Code with its language and a copy button. Colours come later and change no size, so nothing moves. */
export const CodeBlock = memo(function CodeBlock({ code, language, isOpen }: Props) {
  const shown = showDirection(code);
  const html = useColours(shown, language, !isOpen);
  const label = language || "text";
  return (
    <figure className="code">
      <figcaption className="code-head">
        <span>{label}</span>
        <CopyButton text={code} label="Copy code" />
      </figcaption>
      {/* Scrolls sideways, so the keyboard must be able to reach it. */}
      <pre tabIndex={0} aria-label={`Code, ${label}`}>
        {html === null ? <code>{shown}</code> : <code dangerouslySetInnerHTML={{ __html: html }} />}
      </pre>
    </figure>
  );
});

function useColours(code: string, language: string, isWhole: boolean): string | null {
  const [coloured, setColoured] = useState<{ code: string; html: string | null } | null>(null);
  useEffect(() => {
    if (!isWhole || language === "" || code.length > MAX_COLOURED) return;
    let isCurrent = true;
    void import("./highlight").then(({ highlight }) => {
      if (isCurrent) setColoured({ code, html: highlight(code, language) });
    });
    return () => {
      isCurrent = false;
    };
  }, [code, language, isWhole]);
  return coloured?.code === code ? coloured.html : null;
}
