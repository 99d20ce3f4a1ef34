import { describe, expect, it } from "vitest";
import type { Reply } from "../state/conversation";
import { replyFacts } from "./facts";

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
