import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, BrowserContextOptions, Locator, Page, Route } from "playwright-core";
import { expect } from "vitest";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Longest wait for a whole reply of the default model on a busy two-core machine. */
const REPLY_MS = 40_000;

/** The chat page in a browser context of its own, with what went wrong in it. */
export class ChatPage {
  /** Console errors, uncaught exceptions and requests to other hosts. */
  readonly troubles: string[] = [];

  private constructor(readonly page: Page) {}

  static async open(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<ChatPage> {
    const chat = await ChatPage.visit(browser, url, options);
    await chat.box.waitFor();
    return chat;
  }

  /** Like `open`, where something may stand before the chat. */
  static async visit(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<ChatPage> {
    const context = await browser.newContext({ viewport: { width: 1100, height: 750 }, ...options });
    const chat = new ChatPage(await context.newPage());
    chat.watch(url);
    await chat.page.goto(url);
    return chat;
  }

  get box(): Locator {
    return this.page.getByLabel("Your message");
  }

  get send(): Locator {
    return this.page.getByRole("button", { name: "Send", exact: true });
  }

  get stop(): Locator {
    return this.page.getByRole("button", { name: "Stop", exact: true });
  }

  get replies(): Locator {
    return this.page.locator(".reply");
  }

  get lastReply(): Locator {
    return this.replies.last();
  }

  async ask(text: string): Promise<void> {
    await this.box.fill(text);
    await this.send.click();
  }

  /** Asks for a reply that goes on until it is stopped, however short the model would have made it. */
  async askWithoutEnd(text: string): Promise<void> {
    const goOn = async (route: Route) => {
      const body = route.request().postDataJSON() as Record<string, unknown>;
      await route.continue({ postData: { ...body, ignore_eos: true } });
    };
    await this.page.route("**/v1/chat/completions", goOn, { times: 1 });
    await this.ask(text);
  }

  /** Waits until the first words of the last reply are there. */
  async firstWords(): Promise<string> {
    const prose = this.lastReply.locator(".prose");
    await prose.waitFor({ timeout: REPLY_MS });
    return prose.innerText();
  }

  /** Waits until the last reply has ended; its state and text. */
  async ended(): Promise<{ status: string | null; text: string }> {
    await this.page.locator('.reply:last-child[aria-busy="false"]').waitFor({ timeout: REPLY_MS });
    const status = await this.lastReply.getAttribute("data-status");
    const prose = this.lastReply.locator(".prose");
    return { status, text: (await prose.count()) > 0 ? await prose.innerText() : "" };
  }

  /** Rules that axe finds broken seriously or worse. */
  async axe(): Promise<string[]> {
    await this.page.evaluate(AXE);
    return this.page.evaluate(async () => {
      const { axe } = window as unknown as { axe: { run(): Promise<AxeResults> } };
      const { violations } = await axe.run();
      return violations
        .filter(({ impact }) => impact === "serious" || impact === "critical")
        .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" | ")}`);
    });
  }

  async hasFocus(element: Locator): Promise<boolean> {
    return element.evaluate((it) => it === document.activeElement);
  }

  async scrollsSideways(): Promise<boolean> {
    return this.page.evaluate(() =>
      [document.documentElement, document.querySelector("main")].some(
        (element) => element !== null && element.scrollWidth > element.clientWidth,
      ),
    );
  }

  async close(): Promise<void> {
    await this.page.context().close();
  }

  private watch(url: string): void {
    const { origin } = new URL(url);
    this.page.on("console", (message) => {
      // That is how the page learns that a server has no accounts.
      if (message.location().url.endsWith("/api/session")) return;
      if (message.type() === "error") this.troubles.push(`console: ${message.text()}`);
    });
    this.page.on("pageerror", (error) => this.troubles.push(`exception: ${error.message}`));
    this.page.context().on("request", (request) => {
      const target = new URL(request.url());
      if (target.origin !== origin && target.protocol !== "data:" && target.protocol !== "blob:") {
        this.troubles.push(`request: ${request.url()}`);
      }
    });
  }
}

interface AxeResults {
  violations: { id: string; impact: string; nodes: { html: string }[] }[];
}

/** Sequences in the engine, as `/metrics` tells. */
export async function runningSequences(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const match = /^motet_\w*running\w*(?:\{[^}]*\})? ([\d.e+]+)$/m.exec(text);
  expect(match, "a motet_…running gauge in /metrics").not.toBeNull();
  return Number(match?.[1]);
}
