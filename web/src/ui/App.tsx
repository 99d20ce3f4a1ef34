import { useCallback, useEffect, useMemo, useRef, useState, type RefObject } from "react";
import { effective, expectations, type ModelStore, type PickStore } from "../chat/model";
import type { ChatSession } from "../chat/session";
import { activeReply, type Action, type Conversation } from "../state/conversation";
import type { Store } from "../state/store";
import { AccountDialog } from "./account/AccountDialog";
import { Composer, type ComposerHandle } from "./Composer";
import { EmptyState } from "./EmptyState";
import { Header } from "./Header";
import { Icon } from "./Icon";
import { Thread } from "./Thread";
import { isTouchOnly } from "./keys";
import { SessionContext, useAccount } from "./context";
import { status } from "./status";
import { useAnnouncements } from "./useAnnouncements";
import { useFollow } from "./useFollow";
import { useStore } from "./useStore";

export interface AppProps {
  session: ChatSession;
  conversation: Store<Conversation, Action>;
  model: ModelStore;
  pick: PickStore;
  storage: Storage;
  /** Not while somebody has to sign in again. */
  isShown: boolean;
}

export function App(props: AppProps) {
  const { session, conversation: store, model: modelStore, pick, storage, isShown } = props;
  const account = useStore(useAccount().state);
  const [isAccountOpen, setAccountOpen] = useState(false);
  const openAccount = useCallback(() => setAccountOpen(true), []);
  const conversation = useStore(store);
  const model = useStore(modelStore);
  const composer = useRef<ComposerHandle>(null);
  const { frame, content, isAtEnd, toEnd } = useFollow();
  const isWriting = activeReply(conversation) !== null;
  const isEmpty = conversation.messages.length === 0;
  const picked = useStore(pick);
  const note = useMemo(
    () => expectations(model.kind === "ready" ? effective(picked, model) : null),
    [model, picked],
  );

  const clear = useCallback(() => {
    session.clear();
    composer.current?.focus();
  }, [session]);
  useShortcuts(session, clear);
  useAnnouncements(conversation);

  // A new turn is always shown, wherever the reader was.
  const turns = conversation.messages.length;
  useEffect(() => {
    if (turns > 0) toEnd();
  }, [turns, toEnd]);
  useFocusHome(composer, isWriting, isShown);

  return (
    <SessionContext value={session}>
      <div className="app">
        <Header
          model={model}
          pick={pick}
          storage={storage}
          canClear={!isEmpty}
          onClear={clear}
          userName={account.kind === "signed_in" ? account.user.display_name : null}
          onAccount={openAccount}
        />
        <main ref={frame} className="frame">
          <div ref={content} className="column">
            {isEmpty ? <EmptyState note={note} /> : <Thread conversation={conversation} />}
          </div>
        </main>
        <div className="bottom">
          {!isAtEnd && (
            <button type="button" className="jump" onClick={toEnd}>
              <Icon name="down" />
              Jump to latest
            </button>
          )}
          <Composer ref={composer} isWriting={isWriting} storage={storage} onSend={toEnd} />
          <p className="footnote" hidden={isEmpty}>
            {note}
          </p>
        </div>
        <Status />
        {isAccountOpen && account.kind === "signed_in" && (
          <AccountDialog me={account.user} onClose={() => setAccountOpen(false)} />
        )}
      </div>
    </SessionContext>
  );
}

function Status() {
  return (
    <div className="sr-only" role="status" aria-live="polite">
      {useStore(status)}
    </div>
  );
}

/** Buttons that begin or end a reply leave the page with it; the focus they held goes to the composer. */
function useFocusHome(
  composer: RefObject<ComposerHandle | null>,
  isWriting: boolean,
  isShown: boolean,
): void {
  useEffect(() => {
    if (!isShown) return;
    const hasNone = document.activeElement === null || document.activeElement === document.body;
    if (hasNone && !isTouchOnly()) composer.current?.focus();
  }, [composer, isWriting, isShown]);
}

/** Esc stops the reply; Mod+Shift+O begins a new chat. */
function useShortcuts(session: ChatSession, clear: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.isComposing || event.defaultPrevented) return;
      if (event.key === "Escape") session.stop();
      if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        clear();
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [session, clear]);
}
