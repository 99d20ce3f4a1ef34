import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Account } from "./account/account";
import { watchOwner } from "./account/owner";
import { isOpen } from "./account/state";
import { createApi } from "./api/client";
import { onNextFrame } from "./chat/frames";
import { createModelStore, createPickStore, pickModel, watchModel } from "./chat/model";
import { ChatSession } from "./chat/session";
import { reduce } from "./state/conversation";
import { keepConversation, loadConversation, saveDraft, storageOr } from "./state/persist";
import { createStore } from "./state/store";
import { Root } from "./ui/Root";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/thread.css";
import "./styles/prose.css";
import "./styles/account.css";

const local = storageOr(() => window.localStorage);
const perTab = storageOr(() => window.sessionStorage);

const account = new Account();
const model = createModelStore();
const pick = createPickStore(local);
const api = createApi(account.fetch);
const conversation = createStore(reduce, loadConversation(perTab));
const save = keepConversation(perTab, conversation);
window.addEventListener("pagehide", save);

const session = new ChatSession({
  api: pickModel(api, model, pick.get),
  store: conversation,
  schedule: onNextFrame,
  now: () => performance.now(),
  newId: newMessageId,
});
// A conversation is a tab's own, a draft the browser's.
watchOwner(perTab, account.state, () => {
  session.clear();
  save();
});
watchOwner(local, account.state, () => saveDraft(local, ""));
watchModelWhileOpen();
void account.ask();

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Root
        account={account}
        session={session}
        conversation={conversation}
        model={model}
        pick={pick}
        storage={local}
      />
    </StrictMode>,
  );
}

/** Asks for the models when the chat opens, and again for whoever opens it next: they may have others. */
function watchModelWhileOpen(): void {
  let watching: AbortController | null = null;
  account.state.subscribe(() => {
    if (isOpen(account.state.get())) {
      if (watching === null) {
        watching = new AbortController();
        void watchModel(api, model, watching.signal);
      }
    } else {
      watching?.abort();
      watching = null;
    }
  });
}

/** 128 random bits. `crypto.randomUUID` is missing on plain http from another machine. */
function newMessageId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
