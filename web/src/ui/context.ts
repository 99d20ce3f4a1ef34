import { createContext, useContext } from "react";
import type { Account } from "../account/account";
import type { ChatSession } from "../chat/session";

/** What parts of the page may ask for, without passing it through every component. */
export const SessionContext = createContext<ChatSession | null>(null);
export const AccountContext = createContext<Account | null>(null);

export function useSession(): ChatSession {
  const session = useContext(SessionContext);
  if (session === null) throw new Error("no SessionContext above this component");
  return session;
}

export function useAccount(): Account {
  const account = useContext(AccountContext);
  if (account === null) throw new Error("no AccountContext above this component");
  return account;
}
