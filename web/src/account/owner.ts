import type { AccountStore } from "./state";

const OWNER = "motet.owner";

/**
 * Remembers whose conversation this tab has. `forget` is called when they sign out, and before somebody else sees
 * the page; a session that only ended keeps everything for who signs in again.
 */
export function watchOwner(storage: Storage, account: AccountStore, forget: () => void): void {
  const look = () => {
    const state = account.get();
    if (state.kind === "signed_in") {
      const owner = read(storage);
      if (owner === state.user.id) return;
      if (owner !== null) forget();
      write(storage, state.user.id);
    } else if (state.kind === "signed_out" && !state.hadSession && wasIn) {
      forget();
      write(storage, null);
    }
  };
  let wasIn = false;
  account.subscribe(() => {
    look();
    wasIn = account.get().kind === "signed_in";
  });
}

function read(storage: Storage): string | null {
  try {
    return storage.getItem(OWNER);
  } catch {
    return null;
  }
}

function write(storage: Storage, id: string | null): void {
  try {
    if (id === null) storage.removeItem(OWNER);
    else storage.setItem(OWNER, id);
  } catch {
    // Blocked storage keeps no conversation either.
  }
}
