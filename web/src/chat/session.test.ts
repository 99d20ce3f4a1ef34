import { describe, expect, it, vi } from "vitest";
import type { ChatRequest, ReplyEvent } from "../api/client";
import { CUT, LOADING, ReplyFailure } from "../api/failure";
import { activeReply, EMPTY, reduce, type Reply } from "../state/conversation";
import { createStore } from "../state/store";
import { ChatSession, type ChatApi } from "./session";

type Step = string | ReplyEvent | Error | "pause";

/** A session over an api that plays `plays`, one list of steps per request; `pause` waits for an abort. */
function start(plays: Step[][], modelErrors: Error[] = []) {
  const requests: ChatRequest[] = [];
  const api: ChatApi = {
    model: () => {
      const error = modelErrors.shift();
      return error ? Promise.reject(error) : Promise.resolve("m");
    },
    async *reply(request, signal) {
      requests.push(request);
      for (const step of plays[requests.length - 1] ?? []) {
        if (step instanceof Error) throw step;
        if (step === "pause") await untilAbort(signal);
        else if (typeof step === "string") yield { kind: "text", text: step };
        else yield step;
      }
    },
  };
  const store = createStore(reduce, EMPTY);
  const frames: (() => void)[] = [];
  let ids = 0;
  let clock = 0;
  const session = new ChatSession({
    api,
    store,
    schedule: (task) => {
      frames.push(task);
      return () => frames.splice(frames.indexOf(task) >>> 0, 1);
    },
    now: () => (clock += 100),
    newId: () => `id${(ids += 1)}`,
  });
  const last = () => store.get().messages.at(-1) as Reply;
  const ended = () => vi.waitFor(() => expect(activeReply(store.get())).toBeNull());
  return { session, store, requests, frames, last, ended };
}

function untilAbort(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener("abort", () => reject(signal.reason as Error));
  });
}

const FINISH: ReplyEvent = { kind: "finish", reason: "stop" };
const USAGE: ReplyEvent = {
  kind: "usage",
  usage: { promptTokens: 9, completionTokens: 2, cachedTokens: 0 },
};

describe("ChatSession", () => {
  it("writes a reply with its numbers", async () => {
    const { session, last, ended, requests } = start([["hel", "lo", FINISH, USAGE]]);
    session.send("hi");
    await ended();
    expect(last()).toMatchObject({
      text: "hello",
      status: "done",
      finish: "stop",
      model: "m",
      usage: { completionTokens: 2 },
      timing: { firstMs: 100, writeMs: 100 },
    });
    expect(requests).toEqual([{ model: "m", messages: [{ role: "user", content: "hi" }] }]);
  });

  it("notes who answers and what the server says about it", async () => {
    const { session, last, ended } = start([
      [
        { kind: "served", model: "small", reason: "auto:easy" },
        { kind: "notice", notice: { degraded: ["shorten-output"], maxTokens: 9 } },
        { kind: "notice", notice: { queue: { position: 2, etaSeconds: 4 } } },
        "x",
        FINISH,
      ],
    ]);
    session.send("hi");
    await ended();
    expect(last()).toMatchObject({
      model: "small",
      reason: "auto:easy",
      notice: { degraded: ["shorten-output"], maxTokens: 9, queue: { position: 2, etaSeconds: 4 } },
    });
  });

  it("hands text on once per frame", async () => {
    const { session, last, frames } = start([["a", "b", "c", "pause"]]);
    session.send("hi");
    await vi.waitFor(() => expect(frames.length).toBe(1));
    await new Promise((resolve) => setTimeout(resolve));
    expect(frames.length).toBe(1);
    expect(last().text).toBe("");
    frames[0]?.();
    expect(last().text).toBe("abc");
    session.stop();
  });

  it("stops at once and keeps what arrived, also what no frame has shown", async () => {
    const { session, last, frames } = start([["a", "b", "pause"]]);
    session.send("hi");
    await vi.waitFor(() => expect(frames.length).toBe(1));
    session.stop();
    expect(last()).toMatchObject({ text: "ab", status: "stopped" });
  });

  it("stops before the first word, and can send again", async () => {
    const { session, last, ended, store } = start([["pause"], ["x"]]);
    session.send("hi");
    session.stop();
    expect(last()).toMatchObject({ text: "", status: "stopped" });
    await vi.waitFor(() => {
      session.send("again");
      expect(store.get().messages.length).toBe(4);
    });
    await ended();
    expect(last().text).toBe("x");
  });

  it("stops twice, and after the end, without effect", async () => {
    const { session, last, ended } = start([["a"]]);
    session.stop();
    session.send("hi");
    await ended();
    session.stop();
    expect(last().status).toBe("done");
  });

  it("sends one at a time and nothing empty", async () => {
    const { session, store } = start([["pause"]]);
    session.send("  \n");
    expect(store.get().messages.length).toBe(0);
    session.send("one");
    session.send("two");
    expect(store.get().messages.length).toBe(2);
    session.stop();
  });

  it("marks a cut reply as failed and keeps its text", async () => {
    const { session, last, ended } = start([["half", new ReplyFailure(CUT)]]);
    session.send("hi");
    await ended();
    expect(last()).toMatchObject({ text: "half", status: "failed", failure: { kind: "cut" } });
  });

  it("waits for a loading model on its own, and a stop ends the wait", async () => {
    const loading = () => new ReplyFailure({ ...LOADING, retryAfterMs: 1 });
    const { session, last, ended, requests } = start([["ok"]], [loading(), loading()]);
    session.send("hi");
    await vi.waitFor(() => expect(last().hold?.attempt).toBe(1));
    await ended();
    expect(last().text).toBe("ok");
    expect(requests.length).toBe(1);

    const other = start([], Array.from({ length: 50 }, loading));
    other.session.send("hi");
    await vi.waitFor(() => expect(other.last().hold).not.toBeNull());
    other.session.stop();
    expect(other.last()).toMatchObject({ status: "stopped", hold: null });
  });

  it("asks again and edits with the path before it", async () => {
    const { session, store, requests, ended, last } = start([["one"], ["two"], ["three"]]);
    session.send("hi");
    await ended();
    await settle();
    session.again(last().id);
    await ended();
    await settle();
    expect(last().text).toBe("two");
    session.edit(store.get().messages[0]?.id ?? "", "hello");
    await ended();
    expect(requests.map((request) => request.messages)).toEqual([
      [{ role: "user", content: "hi" }],
      [{ role: "user", content: "hi" }],
      [{ role: "user", content: "hello" }],
    ]);
    expect(store.get().messages.length).toBe(2);
  });

  it("clears while a reply is written", async () => {
    const { session, store } = start([["a", "pause"]]);
    session.send("hi");
    session.clear();
    await settle();
    expect(store.get()).toBe(EMPTY);
  });
});

function settle(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
