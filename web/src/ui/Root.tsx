import { useEffect, useState } from "react";
import type { Account } from "../account/account";
import { isOpen, type AccountState } from "../account/state";
import { App, type AppProps } from "./App";
import { AccountContext } from "./context";
import { Gate } from "./gate/Gate";
import { announce } from "./status";
import { useStore } from "./useStore";

/** The chat, or what stands before it. A chat whose session ended stays as it is, out of sight. */
export function Root({ account, ...app }: Omit<AppProps, "isShown"> & { account: Account }) {
  const state = useStore(account.state);
  const owner = useOwner(state);
  const isShown = isOpen(state);
  const isKept = state.kind === "signed_out" && state.hadSession;
  const name = state.kind === "signed_in" ? state.user.display_name : null;
  useEffect(() => {
    if (name !== null) announce(`Signed in as ${name}`);
  }, [name]);
  return (
    <AccountContext value={account}>
      {(isShown || isKept) && (
        <div hidden={!isShown}>
          <App key={owner} isShown={isShown} {...app} />
        </div>
      )}
      {!isShown && <Gate account={account} state={state} />}
    </AccountContext>
  );
}

/** Who is, or was last, signed in: another user gets a page without anything of the one before. */
function useOwner(state: AccountState): string {
  const [owner, setOwner] = useState("");
  const now = state.kind === "signed_in" ? state.user.id : owner;
  if (now !== owner) setOwner(now);
  return now;
}
