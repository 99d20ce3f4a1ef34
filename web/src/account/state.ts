import { createStore, type Store } from "../state/store";

export type Role = "member" | "admin" | "owner";

/** A user as the API has it. */
export interface User {
  id: string;
  login: string;
  display_name: string;
  role: Role;
  tier: string;
  is_disabled: boolean;
}

/** Another place to sign in: the browser is sent to `url`. */
export interface Provider {
  name: string;
  title?: string;
  url: string;
}

export type AccountState =
  | { kind: "asking" }
  | { kind: "unknown" } // the server did not say; it is asked again with the next request
  | { kind: "off" } // a server without accounts
  | { kind: "setup"; needsToken: boolean }
  | { kind: "signed_out"; providers: readonly Provider[]; hadSession: boolean }
  | { kind: "signed_in"; user: User; csrf: string; providers: readonly Provider[] };

export type AccountStore = Store<AccountState, AccountState>;

export function createAccountStore(): AccountStore {
  return createStore<AccountState, AccountState>((_, next) => next, { kind: "asking" });
}

/** Whether the chat can be used, as far as is known. */
export function isOpen(state: AccountState): boolean {
  return state.kind === "off" || state.kind === "unknown" || state.kind === "signed_in";
}

/** What a session object of the API says; `before` tells a session that ended from one that never was. */
export function stateOf(body: unknown, before: AccountState): AccountState {
  if (typeof body !== "object" || body === null) return { kind: "unknown" };
  const { user, csrf_token, setup, providers } = body as {
    user?: User | null;
    csrf_token?: string | null;
    setup?: string | null;
    providers?: Provider[];
  };
  const known = Array.isArray(providers) ? providers : [];
  if (user) return { kind: "signed_in", user, csrf: csrf_token ?? "", providers: known };
  if (setup) return { kind: "setup", needsToken: setup === "token" };
  const hadSession = before.kind === "signed_in" || (before.kind === "signed_out" && before.hadSession);
  return { kind: "signed_out", providers: known, hadSession };
}
