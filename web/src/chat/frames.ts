/** Longest wait for a frame: a hidden tab draws none, and its reply should still arrive. */
const NO_FRAME_MS = 250;

/** Runs `task` once, with the next frame or soon after in a hidden tab. Returns what cancels it. */
export type Schedule = (task: () => void) => () => void;

export const onNextFrame: Schedule = (task) => {
  const run = () => {
    cancel();
    task();
  };
  const frame = requestAnimationFrame(run);
  const timer = setTimeout(run, NO_FRAME_MS);
  const cancel = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
  return cancel;
};

/** Collects text and hands it on at most once per frame. */
export class FrameBuffer {
  #text = "";
  #cancel: (() => void) | null = null;
  readonly #schedule: Schedule;
  readonly #sink: (text: string) => void;

  constructor(schedule: Schedule, sink: (text: string) => void) {
    this.#schedule = schedule;
    this.#sink = sink;
  }

  push(text: string): void {
    this.#text += text;
    this.#cancel ??= this.#schedule(() => this.flush());
  }

  /** Hands on what is held, now. */
  flush(): void {
    this.#cancel?.();
    this.#cancel = null;
    const text = this.#text;
    this.#text = "";
    if (text !== "") this.#sink(text);
  }
}
