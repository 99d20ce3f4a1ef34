import type { Api, Usage } from "../api/client";
import { CUT, ReplyFailure, type Failure } from "../api/failure";
import { activeReply, turnsBefore, type Action, type Conversation, type Timing } from "../state/conversation";
import type { Store } from "../state/store";
import { delayMs, MAX_ATTEMPTS, sleep } from "./backoff";
import { FrameBuffer, type Schedule } from "./frames";

/** What a reply needs of the server. */
export interface ChatApi extends Pick<Api, "reply"> {
  /** The name of the model to ask. Throws `ReplyFailure`. */
  model(signal: AbortSignal): Promise<string>;
}

export interface SessionDeps {
  api: ChatApi;
  store: Store<Conversation, Action>;
  schedule: Schedule;
  /** Monotonic milliseconds. */
  now: () => number;
  newId: () => string;
}

/**
 * Writes replies into the store: one at a time, from the first request to the last event.
 *
 * Invariant: `#running` is set exactly while the store's last reply is being written by this session.
 */
export class ChatSession {
  readonly #deps: SessionDeps;
  #running: AbortController | null = null;

  constructor(deps: SessionDeps) {
    this.#deps = deps;
  }

  /** Asks `text`. Does nothing while a reply is being written or when there is nothing to ask. */
  send(text: string): void {
    if (text.trim() === "") return;
    this.#start((replyId) => ({ type: "asked", id: this.#deps.newId(), text, replyId }));
  }

  /** Has reply `replyId` written anew; it and what followed it give way. */
  again(replyId: string): void {
    this.#start((newReplyId) => ({ type: "asked_again", replyId, newReplyId }));
  }

  /** Replaces question `id` and what followed it. */
  edit(id: string, text: string): void {
    if (text.trim() === "") return;
    this.#start((replyId) => ({ type: "edited", id, newId: this.#deps.newId(), text, replyId }));
  }

  /** Ends the reply that is being written, before its first word too. What arrived stays. */
  stop(): void {
    this.#running?.abort();
  }

  clear(): void {
    this.stop();
    this.#deps.store.dispatch({ type: "cleared" });
  }

  #start(action: (replyId: string) => Action): void {
    if (this.#running || activeReply(this.#deps.store.get())) return;
    const replyId = this.#deps.newId();
    this.#deps.store.dispatch(action(replyId));
    const running = new AbortController();
    this.#running = running;
    void this.#write(replyId, running.signal).finally(() => {
      if (this.#running === running) this.#running = null;
    });
  }

  async #write(replyId: string, signal: AbortSignal): Promise<void> {
    const { store, schedule } = this.#deps;
    const draft = new Draft(this.#deps.now);
    const buffer = new FrameBuffer(schedule, (text) => store.dispatch({ type: "grew", replyId, text }));
    // A stop shows at once, whatever the connection does; everything that comes later finds the reply ended.
    signal.addEventListener("abort", () => {
      buffer.flush();
      store.dispatch({ type: "ended", replyId, end: draft.end("stopped") });
    });
    try {
      await this.#attempts(replyId, draft, buffer, signal);
      buffer.flush();
      store.dispatch({ type: "ended", replyId, end: draft.end("done") });
    } catch (error) {
      if (signal.aborted) return;
      buffer.flush();
      const failure = error instanceof ReplyFailure ? error.failure : CUT;
      store.dispatch({ type: "ended", replyId, end: draft.end("failed", failure) });
    }
  }

  /** One attempt, and more while the model is loading: nothing was generated then, so repeating is safe. */
  async #attempts(replyId: string, draft: Draft, buffer: FrameBuffer, signal: AbortSignal): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#attempt(replyId, draft, buffer, signal);
        return;
      } catch (error) {
        if (!(error instanceof ReplyFailure) || error.failure.kind !== "loading") throw error;
        if (attempt > MAX_ATTEMPTS) throw error;
        this.#deps.store.dispatch({ type: "held", replyId, why: error.failure, attempt });
        await sleep(delayMs(attempt, error.failure.retryAfterMs), signal);
      }
    }
  }

  async #attempt(replyId: string, draft: Draft, buffer: FrameBuffer, signal: AbortSignal): Promise<void> {
    const { api, store } = this.#deps;
    const model = await api.model(signal);
    store.dispatch({ type: "opened", replyId, model });
    draft.begin();
    const messages = turnsBefore(store.get(), replyId);
    for await (const event of api.reply({ model, messages }, signal)) {
      signal.throwIfAborted();
      if (event.kind === "text") {
        draft.text();
        buffer.push(event.text);
      } else if (event.kind === "finish") draft.finish = event.reason;
      else if (event.kind === "usage") draft.usage = event.usage;
      else if (event.kind === "notice") store.dispatch({ type: "noticed", replyId, notice: event.notice });
      else store.dispatch({ type: "served", replyId, model: event.model, reason: event.reason });
    }
  }
}

/** What is known about the reply in flight. */
class Draft {
  finish: string | null = null;
  usage: Usage | null = null;
  readonly #now: () => number;
  #sentAt = 0;
  #firstAt: number | null = null;
  #lastAt = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  begin(): void {
    this.#sentAt = this.#now();
  }

  text(): void {
    this.#lastAt = this.#now();
    this.#firstAt ??= this.#lastAt;
  }

  end(status: "done" | "stopped" | "failed", failure: Failure | null = null) {
    return { status, finish: this.finish, failure, usage: this.usage, timing: this.#timing() };
  }

  #timing(): Timing | null {
    if (this.#firstAt === null) return null;
    return { firstMs: this.#firstAt - this.#sentAt, writeMs: this.#lastAt - this.#firstAt };
  }
}
