import { useEffect, useState } from "react";
import { copyText } from "./clipboard";
import { Icon } from "./Icon";
import { announce } from "./status";

const SHOWN_MS = 1600;

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = async () => {
    const isDone = await copyText(text);
    announce(isDone ? "Copied" : "The browser did not allow copying");
    setCopied(isDone);
  };
  return (
    <button type="button" className="quiet" aria-label={label} title={label} onClick={() => void copy()}>
      <Icon name={isCopied ? "check" : "copy"} />
    </button>
  );
}
