import type { Reply } from "../state/conversation";

interface Facts {
  summary: string;
  rows: [name: string, value: string][];
}

/** What is known about a reply, in words. Only measured numbers: a stopped reply has no token count. */
export function replyFacts({ model, reason, usage, timing, finish }: Reply): Facts {
  const rows: Facts["rows"] = [];
  const speed = tokensPerSecond(usage?.completionTokens, timing?.writeMs);
  const chosen = choice(reason ?? null);
  if (model) rows.push(["Model", model]);
  if (chosen) rows.push(["Chosen", chosen]);
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

/** Why this model answered, in words; null where it was asked for by its name. */
function choice(reason: string | null): string | null {
  const [, kind, why = ""] = /^(\w+):(.*)$/.exec(reason ?? "") ?? [];
  switch (kind) {
    case "alias":
    case "role":
      return `as “${why}”`;
    case "auto":
      return `automatically (${why})`;
    case "degraded":
      return `to save time (${why})`;
    default:
      return null;
  }
}

/**
 * What the server says about the reply, in a sentence; null where there is nothing to know. The place in line is told
 * until the first word.
 */
export function noticeText({ notice, reason, model, status }: Reply): string | null {
  const parts: string[] = [];
  if (status === "waiting" && notice?.queue) {
    const { position, etaSeconds } = notice.queue;
    parts.push(`Number ${position} in line, about ${duration(etaSeconds * 1000)} to the first word.`);
  } else if (status === "waiting" && notice?.degraded?.includes("queue-with-eta")) {
    parts.push("Waiting in line.");
  }
  if (notice?.degraded?.includes("shorten-output")) {
    const most = notice.maxTokens === undefined ? "shortened" : `at most ${tokens(notice.maxTokens)} long`;
    parts.push(`The server is busy: this reply is ${most}.`);
  }
  if (reason?.startsWith("degraded:"))
    parts.push(`The server is busy: ${model ?? "a smaller model"} answers.`);
  return parts.length > 0 ? parts.join(" ") : null;
}

/** A wait, rounded up: `7 s`, `2:05 min`. */
export function duration(ms: number): string {
  const all = Math.ceil(ms / 1000);
  if (all < 90) return `${all} s`;
  return `${Math.floor(all / 60)}:${String(all % 60).padStart(2, "0")} min`;
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
