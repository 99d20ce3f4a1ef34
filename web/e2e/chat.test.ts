// The page against the server at MOTET_URL; without one, against the mock, which shows only that the page works.
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { ChatPage, runningSequences } from "./chat-page";
import { launch } from "./chromium.mjs";
import { startMock, type Mock } from "./mock-server.mjs";

let browser: Browser;
let mock: Mock | null = null;
let url: string;
let chat: ChatPage;

const MOBILE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const LONG = "Write a long story about a river, from the spring to the sea.";
const SHORT = "Say hello in one short sentence.";

beforeAll(async () => {
  if (!process.env.MOTET_URL) mock = await startMock();
  url = (process.env.MOTET_URL ?? mock?.url ?? "").replace(/\/$/, "");
  browser = await launch();
});
afterAll(async () => {
  await browser.close();
  await mock?.close();
});
afterEach(async () => {
  await chat.close();
});

describe("chat page", () => {
  it("loads, names the model and streams an answer without errors or foreign requests", async () => {
    chat = await ChatPage.open(browser, url);
    const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
    await chat.page
      .locator("header")
      .getByText(data[0]?.id ?? "?", { exact: true })
      .waitFor();
    await chat.ask("Why is the sky blue? Answer in two sentences.");
    const first = await chat.firstWords();
    const { status, text } = await chat.ended();
    expect(status).toBe("done");
    expect(text.length).toBeGreaterThan(10);
    expect(text.startsWith(first.slice(0, 5))).toBe(true);
    expect(await chat.lastReply.locator("summary").innerText()).toMatch(/tokens\/s|Details/);
    expect(chat.troubles).toEqual([]);
  });

  it("stops in mid-reply, keeps the text and frees the sequence", async () => {
    chat = await ChatPage.open(browser, url);
    await chat.askWithoutEnd(LONG);
    const partial = await chat.firstWords();
    await chat.stop.click();
    const { status, text } = await chat.ended();
    expect(status).toBe("stopped");
    expect(text).toContain(partial.slice(0, 10));
    await vi.waitFor(async () => expect(await runningSequences(url)).toBe(0), {
      timeout: 5000,
      interval: 100,
    });
    await chat.page.waitForTimeout(500);
    expect((await chat.ended()).text).toBe(text);
    await chat.ask(SHORT);
    expect((await chat.ended()).status).toBe("done");
    expect(chat.troubles).toEqual([]);
  });

  it("keeps conversation and draft over a reload, also in mid-reply", async () => {
    chat = await ChatPage.open(browser, url);
    await chat.ask(SHORT);
    const { text } = await chat.ended();
    await chat.askWithoutEnd(LONG);
    await chat.firstWords();
    await chat.box.fill("a draft");
    await chat.page.reload();
    await chat.box.waitFor();
    expect(await chat.replies.count()).toBe(2);
    expect(await chat.replies.first().locator(".prose").innerText()).toBe(text);
    expect(await chat.lastReply.getAttribute("data-status")).toBe("failed");
    expect(await chat.firstWords()).not.toBe("");
    expect(await chat.box.inputValue()).toBe("a draft");
    await chat.page.getByRole("button", { name: "New chat" }).click();
    expect(await chat.replies.count()).toBe(0);
    await vi.waitFor(async () => expect(await runningSequences(url)).toBe(0), {
      timeout: 5000,
      interval: 100,
    });
  });

  it("writes a reply again and edits the last question", async () => {
    chat = await ChatPage.open(browser, url);
    await chat.ask(SHORT);
    await chat.ended();
    await chat.page.getByRole("button", { name: "Write again" }).focus();
    await chat.page.keyboard.press("Enter");
    await vi.waitFor(async () => expect(await chat.hasFocus(chat.box)).toBe(true));
    expect((await chat.ended()).status).toBe("done");
    expect(await chat.replies.count()).toBe(1);
    await chat.page.locator(".question").hover();
    const edit = chat.page.getByRole("button", { name: "Edit message" });
    await edit.click();
    await chat.page.keyboard.press("Escape");
    expect(await chat.hasFocus(edit)).toBe(true);
    await edit.click();
    await chat.page.getByLabel("Edit your message").fill("Say goodbye in one short sentence.");
    await chat.page.keyboard.press("Enter");
    expect((await chat.ended()).status).toBe("done");
    expect(await chat.page.locator(".bubble").allInnerTexts()).toEqual([
      "Say goodbye in one short sentence.",
    ]);
  });

  it("remembers the theme, and shows it from the first paint", async () => {
    chat = await ChatPage.open(browser, url, { colorScheme: "light" });
    const background = () => chat.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await chat.page.getByRole("button", { name: /Change to light/ }).click();
    expect(await background()).toBe(light);
    await chat.page.getByRole("button", { name: /Change to dark/ }).click();
    const dark = await background();
    expect(dark).not.toBe(light);
    await chat.page.reload({ waitUntil: "commit" });
    await chat.page.waitForFunction(() => document.body && document.documentElement.dataset.theme === "dark");
    await chat.box.waitFor();
    expect(await background()).toBe(dark);
    await chat.page.getByRole("button", { name: /Change to system/ }).click();
    expect(await background()).toBe(light);
  });

  it("works with the keyboard alone", async () => {
    chat = await ChatPage.open(browser, url);
    const { keyboard } = chat.page;
    await keyboard.type("Tell me a long story");
    await keyboard.press("Shift+Enter");
    await keyboard.type("about rivers.");
    expect(await chat.box.inputValue()).toContain("\n");
    await keyboard.press("Enter");
    await chat.firstWords();
    expect(await chat.box.inputValue()).toBe("");
    await keyboard.press("Escape");
    expect((await chat.ended()).status).toBe("stopped");
    await keyboard.press("Shift+Tab");
    const focused = await chat.page.evaluate(() => document.activeElement?.closest(".reply") !== null);
    expect(focused).toBe(true);
    await keyboard.press("Control+Shift+O");
    expect(await chat.replies.count()).toBe(0);
    expect(await chat.hasFocus(chat.box)).toBe(true);
  });

  for (const colorScheme of ["light", "dark"] as const) {
    it(`has no serious axe violations, ${colorScheme}`, async () => {
      chat = await ChatPage.open(browser, url, { colorScheme, reducedMotion: "reduce" });
      expect(await chat.axe()).toEqual([]);
      await chat.ask(SHORT);
      await chat.ended();
      expect(await chat.axe()).toEqual([]);
    });
  }

  it("fits a phone", async () => {
    chat = await ChatPage.open(browser, url, MOBILE);
    expect(await chat.scrollsSideways()).toBe(false);
    await chat.ask(SHORT);
    expect((await chat.ended()).status).toBe("done");
    expect(await chat.scrollsSideways()).toBe(false);
    for (const button of await chat.page.getByRole("button").all()) {
      const box = await button.boundingBox();
      expect(box?.height, (await button.getAttribute("aria-label")) ?? "").toBeGreaterThanOrEqual(44);
    }
  });

  it("serves a second person at the same time, with a conversation of their own", async () => {
    chat = await ChatPage.open(browser, url);
    const other = await ChatPage.open(browser, url);
    try {
      await Promise.all([chat.ask(SHORT), other.ask("Name three colours.")]);
      const [one, two] = await Promise.all([chat.ended(), other.ended()]);
      expect([one.status, two.status]).toEqual(["done", "done"]);
      expect(await chat.page.locator(".bubble").allInnerTexts()).toEqual([SHORT]);
      expect([...chat.troubles, ...other.troubles]).toEqual([]);
    } finally {
      await other.close();
    }
  });
});
