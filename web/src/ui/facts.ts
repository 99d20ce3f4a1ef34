import type { Reply } from "../state/conversation";

interface Facts {
  summary: string;
  rows: [name: string, value: string][];
}

/** What is known about a reply, in words. Only measured numbers: a stopped reply has no token count. */
export function replyFacts({ model, usage, timing, finish }: Reply): Facts {
  const rows: Facts["rows"] = [];
  const speed = tokensPerSecond(usage?.completionTokens, timing?.writeMs);
  if (model) rows.push(["Model", model]);
  if (usage) {
    const cached = usage.cachedTokens > 0 ? ` (${count(usage.cachedTokens)} from cache)` : "";
    rows.push(["Prompt", `${tokens(usage.promptTokens)}${cached}`]);
    rows.push(["Reply", tokens(usage.completionTokens)]);
  }
  if (timing) rows.push(["First word after", seconds(timing.firstMs)]);
  if (speed !== null) rows.push(["Speed", `${speed} tokens/s`]);
  if (finish === "length") rows.push(["Ended by", "length limit"]);
  const summary = speed === null ? "Details" : `${speed} tokens/s`;
  return { summary, rows: timing || usage ? rows : [] };
}

/** The first token marks the start of writing, so it isn't counted. Null where there is too little to measure. */
function tokensPerSecond(completion: number | undefined, writeMs: number | undefined): string | null {
  if (completion === undefined || writeMs === undefined || completion < 3 || writeMs < 1) return null;
  const rate = ((completion - 1) * 1000) / writeMs;
  return rate < 10 ? rate.toFixed(1) : rate.toFixed(0);
}

function tokens(n: number): string {
  return `${count(n)} ${n === 1 ? "token" : "tokens"}`;
}

function count(n: number): string {
  return n.toLocaleString("en");
}

function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
