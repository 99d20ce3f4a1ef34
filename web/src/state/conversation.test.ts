import { describe, expect, it } from "vitest";
import { CUT, LOADING } from "../api/failure";
import {
  activeReply,
  EMPTY,
  reduce,
  revive,
  turnsBefore,
  type Action,
  type Conversation,
  type End,
} from "./conversation";

const DONE: End = { status: "done", finish: "stop", failure: null, usage: null, timing: null };

function after(...actions: Action[]): Conversation {
  return actions.reduce(reduce, EMPTY);
}

/** `role status text` of each message. */
function lines(state: Conversation): string[] {
  return state.messages.map((m) => (m.role === "user" ? `user ${m.text}` : `${m.status} ${m.text}`.trim()));
}

const ASK: Action = { type: "asked", id: "q1", text: "hi", replyId: "r1" };
const GROW: Action = { type: "grew", replyId: "r1", text: "hel" };
const GROW_MORE: Action = { type: "grew", replyId: "r1", text: "lo" };
const END: Action = { type: "ended", replyId: "r1", end: DONE };
const ASK_TWO: Action = { type: "asked", id: "q2", text: "more", replyId: "r2" };

const CASES: { name: string; actions: Action[]; lines: string[] }[] = [
  { name: "a question waits", actions: [ASK], lines: ["user hi", "waiting"] },
  { name: "text makes it stream", actions: [ASK, GROW, GROW_MORE], lines: ["user hi", "streaming hello"] },
  { name: "it ends", actions: [ASK, GROW, END], lines: ["user hi", "done hel"] },
  {
    name: "a failure keeps the text",
    actions: [ASK, GROW, { type: "ended", replyId: "r1", end: { ...DONE, status: "failed", failure: CUT } }],
    lines: ["user hi", "failed hel"],
  },
  { name: "late text of an ended reply is dropped", actions: [ASK, END, GROW], lines: ["user hi", "done"] },
  {
    name: "a second end is dropped",
    actions: [ASK, { ...END, end: { ...DONE, status: "stopped" } }, END],
    lines: ["user hi", "stopped"],
  },
  { name: "events of unknown replies change nothing", actions: [GROW], lines: [] },
  {
    name: "asking again replaces the reply",
    actions: [ASK, GROW, END, { type: "asked_again", replyId: "r1", newReplyId: "r9" }, GROW],
    lines: ["user hi", "waiting"],
  },
  {
    name: "an edit replaces the question and what followed",
    actions: [
      ASK,
      END,
      ASK_TWO,
      { ...END, replyId: "r2" },
      { type: "edited", id: "q2", newId: "q3", text: "new", replyId: "r3" },
    ],
    lines: ["user hi", "done", "user new", "waiting"],
  },
  { name: "clearing forgets all", actions: [ASK, GROW, { type: "cleared" }, GROW], lines: [] },
];

describe("reduce", () => {
  for (const { name, actions, lines: expected } of CASES) {
    it(name, () => expect(lines(after(...actions))).toEqual(expected));
  }

  it("shows a hold until the server answers", () => {
    const held = after(ASK, { type: "held", replyId: "r1", why: LOADING, attempt: 2 });
    expect(activeReply(held)?.hold).toEqual({ why: LOADING, attempt: 2 });
    expect(activeReply(reduce(held, { type: "opened", replyId: "r1", model: "m" }))).toMatchObject({
      hold: null,
      model: "m",
    });
  });

  it("changes only the reply that grows", () => {
    const before = after(ASK, GROW, END, ASK_TWO);
    const next = reduce(before, { type: "grew", replyId: "r2", text: "x" });
    expect(next.messages.slice(0, 3).every((message, i) => message === before.messages[i])).toBe(true);
  });
});

describe("turnsBefore", () => {
  it("is the visible path, without replies that never got a word", () => {
    const state = after(ASK, { ...END, end: { ...DONE, status: "stopped" } }, ASK_TWO);
    expect(turnsBefore(state, "r2")).toEqual([
      { role: "user", content: "hi" },
      { role: "user", content: "more" },
    ]);
    expect(turnsBefore(after(ASK, GROW, END, ASK_TWO), "r2").map((turn) => turn.role)).toEqual([
      "user",
      "assistant",
      "user",
    ]);
  });
});

describe("revive", () => {
  it("marks a reply that was being written as interrupted and leaves the others", () => {
    const revived = revive(after(ASK, END, ASK_TWO, { type: "grew", replyId: "r2", text: "half" }));
    expect(lines(revived)).toEqual(["user hi", "done", "user more", "failed half"]);
    expect(activeReply(revived)).toBeNull();
  });
});
