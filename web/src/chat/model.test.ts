import { describe, expect, it } from "vitest";
import type { Model } from "../api/client";
import { LOADING, ReplyFailure, UNREACHABLE } from "../api/failure";
import { delayMs, MAX_ATTEMPTS } from "./backoff";
import {
  createModelStore,
  createPickStore,
  effective,
  expectations,
  parametersIn,
  watchModel,
  type ModelState,
} from "./model";

const named = (id: string): Model => ({ id, description: "", roles: [] });

describe("effective", () => {
  const cases: { picked: string | null; models: string[]; asks: string }[] = [
    { picked: null, models: ["a", "b"], asks: "a" },
    { picked: "b", models: ["a", "b"], asks: "b" },
    { picked: "auto", models: ["a", "b"], asks: "auto" },
    { picked: "gone", models: ["a", "b"], asks: "a" },
    { picked: "auto", models: ["a"], asks: "a" },
  ];
  for (const { picked, models, asks } of cases) {
    it(`${picked} of ${models.join(", ")} → ${asks}`, () => {
      expect(effective(picked, { id: models[0] ?? "", models: models.map(named) })).toBe(asks);
    });
  }
});

describe("createPickStore", () => {
  it("remembers the pick", () => {
    createPickStore(localStorage).dispatch("b");
    expect(createPickStore(localStorage).get()).toBe("b");
  });
});

describe("parametersIn", () => {
  const cases: [string, number | null][] = [
    ["SmolLM2-135M-Instruct", 135e6],
    ["SmolLM2-135M-Instruct.Q4_1.gguf", 135e6],
    ["qwen2.5-coder-0.5b-instruct", 0.5e9],
    ["meta-llama/Llama-3.1-8B-Instruct", 8e9],
    ["gemma3-270m", 270e6],
    ["gpt-4o", null],
    ["phi-3-mini-4k-instruct", 4e3],
    ["model-1Bit", null],
    ["", null],
  ];
  for (const [id, parameters] of cases) {
    it(`${id || "nothing"} → ${parameters}`, () => expect(parametersIn(id)).toBe(parameters));
  }
});

describe("expectations", () => {
  it("grow with the model", () => {
    expect(expectations("SmolLM2-135M-Instruct")).toMatch(/very small/);
    expect(expectations("Llama-3.1-8B")).toMatch(/^A small model/);
    expect(expectations("Llama-3.1-70B")).toMatch(/^Replies can be wrong/);
    expect(expectations(null)).toMatch(/^Replies can be wrong/);
  });
});

describe("delayMs", () => {
  it("doubles to a bound, and takes sane advice", () => {
    expect([1, 2, 3, 4, 5, 20].map((attempt) => delayMs(attempt))).toEqual([
      500, 1000, 2000, 4000, 5000, 5000,
    ]);
    expect([0, 3000, 1e9].map((advice) => delayMs(1, advice))).toEqual([500, 3000, 20000]);
  });

  it("gives up after about two minutes", () => {
    const total = Array.from({ length: MAX_ATTEMPTS }, (_, i) => delayMs(i + 1)).reduce((a, b) => a + b);
    expect(total / 1000).toBeGreaterThan(100);
    expect(total / 1000).toBeLessThan(150);
  });
});

describe("watchModel", () => {
  it("goes on until the server names a model", async () => {
    const quick = { retryAfterMs: 1 };
    const answers: (Error | string)[] = [
      new ReplyFailure({ ...UNREACHABLE, ...quick }),
      new ReplyFailure({ ...LOADING, ...quick }),
      "m",
    ];
    const store = createModelStore();
    const seen: ModelState["kind"][] = [];
    store.subscribe(() => seen.push(store.get().kind));
    const models = () => {
      const answer = answers.shift() ?? "";
      return answer instanceof Error ? Promise.reject(answer) : Promise.resolve([named(answer)]);
    };
    await watchModel(
      {
        models,
        reply: () => {
          throw new Error("unused");
        },
      },
      store,
      new AbortController().signal,
    );
    expect(seen).toEqual(["unknown", "loading", "ready"]);
  });
});
