import { Refusal, refusalOf } from "./refusal";
import { createAccountStore, stateOf, type AccountState, type User } from "./state";

type Fetch = typeof fetch;

const SESSION = "/api/session";

export interface FirstAccount {
  login: string;
  password: string;
  display_name?: string;
  token?: string;
}

/**
 * Who uses the page, and requests in their name.
 *
 * Invariant: the CSRF token is only in `state`, so in memory, and goes to the own origin alone.
 */
export class Account {
  readonly state = createAccountStore();
  readonly #fetcher: Fetch;
  #asking: Promise<void> | null = null;

  constructor(fetcher: Fetch = (...args) => fetch(...args)) {
    this.#fetcher = fetcher;
  }

  /** Asks the server who is signed in. Callers at the same time share one request. */
  ask(): Promise<void> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  /**
   * `fetch` for paths of the own origin, with the session's token. A token that the server no longer takes is fetched
   * anew and the request repeated, once; after a 401 `state` says who is signed in. The body has to be a string.
   */
  readonly fetch: Fetch = async (input, init) => {
    if (this.state.get().kind === "asking" || this.state.get().kind === "unknown") await this.ask();
    const before = this.state.get();
    const response = await this.#send(input, init);
    if (before.kind === "off" || !(await isAboutSession(response))) return response;
    await this.ask();
    // Never in the name of somebody else, who signed in with this browser meanwhile.
    return isSameUser(before, this.state.get()) ? this.#send(input, init) : response;
  };

  /** Like `fetch` for JSON; anything but a 2xx throws `Refusal`. */
  async json<T>(method: string, path: string, body?: object): Promise<T> {
    const headers = { accept: "application/json", ...(body && { "content-type": "application/json" }) };
    let response: Response;
    try {
      response = await this.fetch(path, { method, headers, body: body && JSON.stringify(body) });
    } catch {
      throw new Refusal({ code: "unreachable", message: "The server can’t be reached." });
    }
    if (!response.ok) throw await refusalOf(response);
    return (await response.json()) as T;
  }

  async signIn(login: string, password: string): Promise<void> {
    this.#enter(await this.json("POST", SESSION, { login, password }));
  }

  /** Makes the first account of a new server, and signs it in. */
  async setUp(first: FirstAccount): Promise<void> {
    this.#enter(await this.json("POST", "/api/setup", first));
  }

  async signOut(): Promise<void> {
    const before = this.state.get();
    await this.json("DELETE", SESSION).catch((error: unknown) => {
      // A session that is over needs no end.
      if (!(error instanceof Refusal && error.status === 401)) throw error;
    });
    const providers = before.kind === "signed_in" ? before.providers : [];
    this.state.dispatch({ kind: "signed_out", providers, hadSession: false });
  }

  /** Takes the user as a later answer has it. */
  update(user: User): void {
    const state = this.state.get();
    if (state.kind === "signed_in" && state.user.id === user.id) this.state.dispatch({ ...state, user });
  }

  #enter(body: unknown): void {
    this.state.dispatch(stateOf(body, this.state.get()));
  }

  #send(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
    const state = this.state.get();
    if (state.kind !== "signed_in" || (init.method ?? "GET") === "GET") return this.#fetcher(input, init);
    const headers = new Headers(init.headers);
    headers.set("x-csrf-token", state.csrf);
    return this.#fetcher(input, { ...init, headers });
  }

  async #ask(): Promise<void> {
    const before = this.state.get();
    const next = await this.#session(before);
    // An answer that says nothing changes nothing for whoever is signed in.
    if (next.kind !== "unknown" || before.kind === "asking") this.state.dispatch(next);
  }

  async #session(before: AccountState): Promise<AccountState> {
    try {
      const response = await this.#fetcher(SESSION, { headers: { accept: "application/json" } });
      if (response.status === 404) return { kind: "off" };
      return response.ok ? stateOf(await response.json(), before) : { kind: "unknown" };
    } catch {
      return { kind: "unknown" };
    }
  }
}

/** Whether a refusal means that the page's idea of the session is old. A wrong password is none of these. */
async function isAboutSession(response: Response): Promise<boolean> {
  if (response.status !== 401 && response.status !== 403) return false;
  const { code } = await refusalOf(response.clone());
  return response.status === 401 ? code !== "wrong_login" : code === "invalid_csrf_token";
}

function isSameUser(one: AccountState, other: AccountState): boolean {
  return one.kind === "signed_in" && other.kind === "signed_in" && one.user.id === other.user.id;
}
