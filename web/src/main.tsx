import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createApi } from "./api/client";
import { onNextFrame } from "./chat/frames";
import { createModelStore, tellModel, watchModel } from "./chat/model";
import { ChatSession } from "./chat/session";
import { reduce } from "./state/conversation";
import { keepConversation, loadConversation, storageOr } from "./state/persist";
import { createStore } from "./state/store";
import { App } from "./ui/App";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/thread.css";
import "./styles/prose.css";

const local = storageOr(() => window.localStorage);
const perTab = storageOr(() => window.sessionStorage);

const model = createModelStore();
const api = tellModel(createApi(), model);
const conversation = createStore(reduce, loadConversation(perTab));
const save = keepConversation(perTab, conversation);
window.addEventListener("pagehide", save);

const session = new ChatSession({
  api,
  store: conversation,
  schedule: onNextFrame,
  now: () => performance.now(),
  newId: newMessageId,
});
void watchModel(createApi(), model, new AbortController().signal);

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App session={session} conversation={conversation} model={model} storage={local} />
    </StrictMode>,
  );
}

/** 128 random bits. `crypto.randomUUID` is missing on plain http from another machine. */
function newMessageId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
