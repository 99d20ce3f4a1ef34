import { describe, expect, it } from "vitest";
import { Account } from "./account";
import { watchOwner } from "./owner";
import { Refusal } from "./refusal";
import type { User } from "./state";

const user = (id: string): User => ({
  id,
  login: id,
  display_name: id,
  role: "member",
  tier: "default",
  is_disabled: false,
});
const signedIn = (id: string, csrf: string) => ({
  user: user(id),
  csrf_token: csrf,
  setup: null,
  providers: [],
});
const NOBODY = {
  user: null,
  csrf_token: null,
  setup: null,
  providers: [{ name: "corp", url: "/api/oidc/corp" }],
};

type Answer = { status?: number; body?: object; headers?: Record<string, string> } | Error;

const refused = (status: number, code: string, headers = {}): Answer => ({
  status,
  body: { error: { message: "why", type: "t", param: null, code } },
  headers,
});

/** An account over `answers`, one for each request, and what was sent: `METHOD path token`. */
function start(...answers: Answer[]) {
  const sent: string[] = [];
  const account = new Account((path, init) => {
    const token = new Headers(init?.headers).get("x-csrf-token");
    sent.push([init?.method ?? "GET", path, token].filter((it) => it !== null).join(" "));
    const answer = answers.shift() ?? new TypeError("no answer left");
    if (answer instanceof Error) return Promise.reject(answer);
    const { status = 200, body = {}, headers } = answer;
    return Promise.resolve(new Response(JSON.stringify(body), { status, headers }));
  });
  return { account, sent };
}

const CHAT = ["/v1/chat/completions", { method: "POST", body: "{}" }] as const;

describe("ask", () => {
  const cases: { name: string; answer: Answer; state: object }[] = [
    { name: "no accounts", answer: { status: 404 }, state: { kind: "off" } },
    { name: "no server", answer: new TypeError(), state: { kind: "unknown" } },
    { name: "no database", answer: refused(503, "accounts_unavailable"), state: { kind: "unknown" } },
    { name: "nobody", answer: { body: NOBODY }, state: { kind: "signed_out", hadSession: false } },
    {
      name: "a new server",
      answer: { body: { ...NOBODY, setup: "open" } },
      state: { kind: "setup", needsToken: false },
    },
    {
      name: "a new server elsewhere",
      answer: { body: { ...NOBODY, setup: "token" } },
      state: { kind: "setup", needsToken: true },
    },
    { name: "somebody", answer: { body: signedIn("ann", "t1") }, state: { kind: "signed_in", csrf: "t1" } },
  ];
  for (const { name, answer, state } of cases) {
    it(`finds ${name}`, async () => {
      const { account, sent } = start(answer);
      await Promise.all([account.ask(), account.ask()]);
      expect(account.state.get()).toMatchObject(state);
      expect(sent).toEqual(["GET /api/session"]);
    });
  }

  it("keeps who is signed in when the server says nothing", async () => {
    const { account } = start({ body: signedIn("ann", "t1") }, new TypeError());
    await account.ask();
    await account.ask();
    expect(account.state.get().kind).toBe("signed_in");
  });
});

describe("fetch", () => {
  const ann = (csrf: string) => ({ body: signedIn("ann", csrf) });
  const cases: { name: string; answers: Answer[]; sent: string[]; status: number; state: string }[] = [
    {
      name: "sends no token where there are no accounts",
      answers: [{ status: 404 }, {}],
      sent: ["GET /api/session", "POST /v1/chat/completions"],
      status: 200,
      state: "off",
    },
    {
      name: "sends the session's token",
      answers: [ann("t1"), {}],
      sent: ["GET /api/session", "POST /v1/chat/completions t1"],
      status: 200,
      state: "signed_in",
    },
    {
      name: "repeats once with a new token",
      answers: [ann("t1"), refused(403, "invalid_csrf_token"), ann("t2"), {}],
      sent: [
        "GET /api/session",
        "POST /v1/chat/completions t1",
        "GET /api/session",
        "POST /v1/chat/completions t2",
      ],
      status: 200,
      state: "signed_in",
    },
    {
      name: "does not repeat twice",
      answers: [ann("t1"), refused(403, "invalid_csrf_token"), ann("t2"), refused(403, "invalid_csrf_token")],
      sent: [
        "GET /api/session",
        "POST /v1/chat/completions t1",
        "GET /api/session",
        "POST /v1/chat/completions t2",
      ],
      status: 403,
      state: "signed_in",
    },
    {
      name: "does not repeat in another user's name",
      answers: [ann("t1"), refused(403, "invalid_csrf_token"), { body: signedIn("bob", "t2") }],
      sent: ["GET /api/session", "POST /v1/chat/completions t1", "GET /api/session"],
      status: 403,
      state: "signed_in",
    },
    {
      name: "finds out that the session ended",
      answers: [ann("t1"), refused(401, "invalid_api_key"), { body: NOBODY }],
      sent: ["GET /api/session", "POST /v1/chat/completions t1", "GET /api/session"],
      status: 401,
      state: "signed_out",
    },
    {
      name: "leaves other refusals alone",
      answers: [ann("t1"), refused(403, "insufficient_permissions")],
      sent: ["GET /api/session", "POST /v1/chat/completions t1"],
      status: 403,
      state: "signed_in",
    },
    {
      name: "asks again where the server did not say",
      answers: [new TypeError(), ann("t1"), {}],
      sent: ["GET /api/session", "GET /api/session", "POST /v1/chat/completions t1"],
      status: 200,
      state: "signed_in",
    },
  ];
  for (const { name, answers, sent: wanted, status, state } of cases) {
    it(name, async () => {
      const { account, sent } = start(...answers);
      await account.ask();
      const response = await account.fetch(...CHAT);
      expect(sent).toEqual(wanted);
      expect(response.status).toBe(status);
      expect(account.state.get().kind).toBe(state);
    });
  }

  it("sends no token with GET", async () => {
    const { account, sent } = start(ann("t1"), {});
    await account.ask();
    await account.fetch("/v1/models");
    expect(sent[1]).toBe("GET /v1/models");
  });
});

describe("signing in and out", () => {
  it("takes the session, and leaves it", async () => {
    const { account, sent } = start({ body: NOBODY }, { body: signedIn("ann", "t1") }, {});
    await account.ask();
    await account.signIn("ann", "correct horse");
    expect(account.state.get()).toMatchObject({ kind: "signed_in", user: { id: "ann" } });
    await account.signOut();
    expect(account.state.get()).toMatchObject({ kind: "signed_out", hadSession: false });
    expect(sent.slice(1)).toEqual(["POST /api/session", "DELETE /api/session t1"]);
  });

  const refusals: { name: string; answer: Answer; says: RegExp; isLater?: boolean }[] = [
    { name: "a wrong password", answer: refused(401, "wrong_login"), says: /login or the password is wrong/ },
    {
      name: "too many tries",
      answer: refused(429, "rate_limit_exceeded", { "retry-after": "4" }),
      says: /Too many tries/,
      isLater: true,
    },
    { name: "no server", answer: new TypeError(), says: /can’t be reached/ },
    { name: "words of the server", answer: refused(400, "invalid_value"), says: /^Why\.$/ },
    { name: "a proxy's page", answer: { status: 502 }, says: /answered 502/ },
  ];
  for (const { name, answer, says, isLater = false } of refusals) {
    it(`refuses: ${name}`, async () => {
      const { account } = start({ body: NOBODY }, answer);
      await account.ask();
      const refusal = await account.signIn("ann", "x").catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(Refusal);
      expect((refusal as Refusal).message).toMatch(says);
      expect((refusal as Refusal).retryAt !== null).toBe(isLater);
      expect(account.state.get().kind).toBe("signed_out");
    });
  }

  it("is out where the session was over, and not where the server is gone", async () => {
    const { account } = start({ body: signedIn("ann", "t1") }, refused(401, "not_signed_in"), {
      body: NOBODY,
    });
    await account.ask();
    await account.signOut();
    expect(account.state.get()).toMatchObject({ kind: "signed_out", hadSession: false });

    const gone = start({ body: signedIn("ann", "t1") }, new TypeError());
    await gone.account.ask();
    await expect(gone.account.signOut()).rejects.toBeInstanceOf(Refusal);
    expect(gone.account.state.get().kind).toBe("signed_in");
  });
});

describe("watchOwner", () => {
  const out = (hadSession: boolean) => ({ kind: "signed_out", providers: [], hadSession }) as const;
  const as = (id: string) => ({ kind: "signed_in", user: user(id), csrf: "", providers: [] }) as const;
  const cases: {
    name: string;
    states: (ReturnType<typeof out> | ReturnType<typeof as>)[];
    forgets: number;
  }[] = [
    { name: "keeps all for the first one", states: [as("ann")], forgets: 0 },
    { name: "keeps all when a session only ended", states: [as("ann"), out(true), as("ann")], forgets: 0 },
    { name: "forgets at a sign-out", states: [as("ann"), out(false)], forgets: 1 },
    { name: "forgets before somebody else comes", states: [as("ann"), out(true), as("bob")], forgets: 1 },
  ];
  for (const { name, states, forgets } of cases) {
    it(name, () => {
      localStorage.clear();
      const { account } = start();
      let count = 0;
      watchOwner(localStorage, account.state, () => (count += 1));
      for (const state of states) account.state.dispatch(state);
      expect(count).toBe(forgets);
    });
  }

  it("knows the owner after a reload", () => {
    localStorage.clear();
    let count = 0;
    for (const id of ["ann", "ann", "bob"]) {
      const { account } = start();
      watchOwner(localStorage, account.state, () => (count += 1));
      account.state.dispatch(as(id));
    }
    expect(count).toBe(1);
  });
});
