import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { EMPTY, reduce, type Action } from "./conversation";
import { keepConversation, loadConversation, loadDraft, saveDraft, storageOr } from "./persist";
import { createStore } from "./store";

const KEY = "motet.conversation";
const ASK: Action = { type: "asked", id: "q1", text: "hi", replyId: "r1" };

beforeEach(() => {
  localStorage.clear();
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe("conversation storage", () => {
  it("brings back what was saved", () => {
    const store = createStore(reduce, EMPTY);
    const save = keepConversation(localStorage, store);
    store.dispatch(ASK);
    store.dispatch({ type: "grew", replyId: "r1", text: "half" });
    save();
    const loaded = loadConversation(localStorage);
    expect(loaded.messages.map((message) => message.text)).toEqual(["hi", "half"]);
    expect(loaded.messages[1]).toMatchObject({ status: "failed", failure: { kind: "cut" } });
  });

  it("writes at most once a second while a reply grows", () => {
    const store = createStore(reduce, EMPTY);
    keepConversation(localStorage, store);
    const writes = vi.spyOn(Storage.prototype, "setItem");
    store.dispatch(ASK);
    for (let i = 0; i < 300; i += 1) {
      store.dispatch({ type: "grew", replyId: "r1", text: "x" });
      vi.advanceTimersByTime(10);
    }
    expect(writes.mock.calls.length).toBeLessThanOrEqual(3);
    writes.mockRestore();
  });

  const broken = [
    "",
    "{",
    "null",
    "[]",
    '{"version":0,"messages":[]}',
    '{"version":1,"messages":{}}',
    '{"version":1,"messages":[null]}',
    '{"version":1,"messages":[{"id":1,"role":"user","text":"x"}]}',
    '{"version":1,"messages":[{"id":"1","role":"tool","text":"x"}]}',
  ];
  for (const value of broken) {
    it(`starts empty from ${value || "an empty value"}`, () => {
      localStorage.setItem(KEY, value);
      expect(loadConversation(localStorage)).toBe(EMPTY);
    });
  }
});

describe("blocked storage", () => {
  it("costs memory across reloads, nothing else", () => {
    const storage = storageOr(() => {
      throw new DOMException("blocked", "SecurityError");
    });
    saveDraft(storage, "x");
    expect(loadDraft(storage)).toBe("");
    expect(loadConversation(storage)).toBe(EMPTY);
  });

  it("may be full", () => {
    const full = {
      ...storageOr(() => localStorage),
      setItem: () => {
        throw new DOMException("full");
      },
    } as Storage;
    expect(() => saveDraft(full, "x")).not.toThrow();
  });
});
