import type { Account } from "./account";
import type { Role, User } from "./state";

// Answers as the API has them; times are Unix seconds.

export interface Device {
  id: string;
  user_agent: string;
  address: string;
  seen_at: number;
  is_current: boolean;
}

export interface Key {
  id: string;
  name: string;
  prefix: string;
  scopes: string[];
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
  revoked_at: number | null;
}

/** Sums of one day, whose date in UTC is `id`. */
export interface UsageDay {
  id: string;
  requests: number;
  prompt_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  /** Millionths of the currency of the server's prices. */
  cost_micros: number;
}

export interface Page<T> {
  data: T[];
  has_more: boolean;
  last_id: string | null;
}

export interface NewKey {
  name: string;
  scopes: string[];
  expires_at?: number;
}

export interface NewUser {
  login: string;
  display_name?: string;
  role: Role;
  tier?: string;
}

export type UserChange = Partial<Pick<User, "display_name" | "role" | "tier" | "is_disabled">> & {
  reset_password?: true;
};

/** A user with the password that the server made, which is told this once. */
export type WithPassword = User & { password?: string };

/** The account endpoints. Each throws `Refusal`. */
export function requests(account: Account) {
  const list = <T>(path: string, after: string | null) =>
    account.json<Page<T>>("GET", after === null ? path : `${path}?after=${encodeURIComponent(after)}`);
  const at = (path: string, id: string) => `${path}/${encodeURIComponent(id)}`;
  return {
    rename: (display_name: string) => account.json<User>("PATCH", "/api/me", { display_name }),
    changePassword: (old: string, fresh: string) =>
      account.json<User>("POST", "/api/session/password", { old, new: fresh }),
    devices: () => account.json<Page<Device>>("GET", "/api/devices"),
    endDevice: (id: string) => account.json("DELETE", at("/api/devices", id)),
    endOtherDevices: () => account.json<{ count: number }>("DELETE", "/api/devices"),
    keys: (after: string | null) => list<Key>("/api/keys", after),
    createKey: (key: NewKey) => account.json<Key & { key: string }>("POST", "/api/keys", key),
    revokeKey: (id: string) => account.json("DELETE", at("/api/keys", id)),
    usage: () => account.json<Page<UsageDay>>("GET", "/v1/usage?group_by=day"),
    users: (after: string | null) => list<User>("/api/users", after),
    createUser: (user: NewUser) => account.json<WithPassword>("POST", "/api/users", user),
    changeUser: (id: string, change: UserChange) =>
      account.json<WithPassword>("PATCH", at("/api/users", id), change),
    removeUser: (id: string) => account.json("DELETE", at("/api/users", id)),
  };
}

export type Requests = ReturnType<typeof requests>;
