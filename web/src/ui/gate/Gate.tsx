import { useEffect, useRef } from "react";
import type { Account } from "../../account/account";
import type { AccountState } from "../../account/state";
import { Setup } from "./Setup";
import { SignIn } from "./SignIn";

/** What stands before the chat while nobody is signed in. */
export function Gate({ account, state }: { account: Account; state: AccountState }) {
  const frame = useRef<HTMLElement>(null);
  // The first field, also when one page gives way to the other.
  useEffect(() => frame.current?.querySelector("input")?.focus(), [state.kind]);
  if (state.kind !== "setup" && state.kind !== "signed_out") return null;
  return (
    <main ref={frame} className="gate">
      <div className="gate-card">
        <div className="gate-brand">
          <img src="/favicon.svg" alt="" width="32" height="32" />
          <span>Motet</span>
        </div>
        {state.kind === "setup" ? (
          <Setup account={account} needsToken={state.needsToken} />
        ) : (
          <SignIn account={account} providers={state.providers} hadSession={state.hadSession} />
        )}
      </div>
    </main>
  );
}
