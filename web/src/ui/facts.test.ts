import { describe, expect, it } from "vitest";
import type { Reply } from "../state/conversation";
import { duration, noticeText, replyFacts } from "./facts";

const REPLY: Reply = {
  role: "assistant",
  id: "r",
  text: "x",
  status: "done",
  model: "m",
  finish: "stop",
  failure: null,
  hold: null,
  usage: { promptTokens: 1200, completionTokens: 101, cachedTokens: 64 },
  timing: { firstMs: 240, writeMs: 2000 },
};

const CASES: { name: string; change: Partial<Reply>; summary: string; rows: string[] }[] = [
  {
    name: "a whole reply",
    change: {},
    summary: "50 tokens/s",
    rows: ["m", "1,200 tokens (64 from cache)", "101 tokens", "240 ms", "50 tokens/s"],
  },
  { name: "a stopped reply", change: { usage: null }, summary: "Details", rows: ["m", "240 ms"] },
  {
    name: "one token",
    change: {
      usage: { promptTokens: 3, completionTokens: 1, cachedTokens: 0 },
      timing: { firstMs: 1500, writeMs: 0 },
    },
    summary: "Details",
    rows: ["m", "3 tokens", "1 token", "1.5 s"],
  },
  {
    name: "a model that was chosen",
    change: { usage: null, reason: "auto:hard:code,long" },
    summary: "Details",
    rows: ["m", "automatically (hard:code,long)", "240 ms"],
  },
  {
    name: "a model asked for",
    change: { usage: null, reason: "exact" },
    summary: "Details",
    rows: ["m", "240 ms"],
  },
  { name: "nothing measured", change: { usage: null, timing: null }, summary: "Details", rows: [] },
];

describe("replyFacts", () => {
  for (const { name, change, summary, rows } of CASES) {
    it(`tells of ${name}`, () => {
      const facts = replyFacts({ ...REPLY, ...change });
      expect(facts.summary).toBe(summary);
      expect(facts.rows.map(([, value]) => value)).toEqual(rows);
    });
  }
});

describe("noticeText", () => {
  const queue = { position: 3, etaSeconds: 12 };
  const cases: { name: string; change: Partial<Reply>; says: RegExp | null }[] = [
    { name: "nothing", change: {}, says: null },
    {
      name: "the line while waiting",
      change: { status: "waiting", notice: { queue } },
      says: /^Number 3 in line, about 12 s/,
    },
    { name: "no line once there are words", change: { status: "streaming", notice: { queue } }, says: null },
    {
      name: "a line without numbers",
      change: { status: "waiting", notice: { degraded: ["queue-with-eta"] } },
      says: /^Waiting in line\.$/,
    },
    {
      name: "a shorter reply",
      change: { notice: { degraded: ["shorten-output"], maxTokens: 512 } },
      says: /busy: this reply is at most 512 tokens long/,
    },
    {
      name: "a smaller model",
      change: { reason: "degraded:overload, instead of big" },
      says: /busy: m answers/,
    },
    { name: "an unknown step", change: { notice: { degraded: ["new-step"] } }, says: null },
  ];
  for (const { name, change, says } of cases) {
    it(`tells ${name}`, () => {
      const text = noticeText({ ...REPLY, ...change });
      if (says === null) expect(text).toBeNull();
      else expect(text).toMatch(says);
    });
  }
});

describe("duration", () => {
  const cases: [number, string][] = [
    [0, "0 s"],
    [6100, "7 s"],
    [90_000, "1:30 min"],
    [300_000, "5:00 min"],
  ];
  for (const [ms, says] of cases) it(`${ms} ms → ${says}`, () => expect(duration(ms)).toBe(says));
});
