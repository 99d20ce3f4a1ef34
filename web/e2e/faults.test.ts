// What a real server does rarely, from the mock: failures, slow starts, hostile text.
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { ChatPage } from "./chat-page";
import { launch } from "./chromium.mjs";
import { startMock, type Mock } from "./mock-server.mjs";

let browser: Browser;
let mock: Mock;
let chat: ChatPage;

beforeAll(async () => {
  browser = await launch();
});
afterAll(async () => {
  await browser.close();
});
beforeEach(async () => {
  mock = await startMock();
});
afterEach(async () => {
  await chat.close();
  await mock.close();
});

const problem = () => chat.lastReply.getByRole("group", { name: "Problem" });

describe("faults", () => {
  it("waits for a loading model on its own", async () => {
    mock.state.loading = 4;
    chat = await ChatPage.open(browser, mock.url);
    await chat.ask("Hello");
    await chat.page.getByText(/The model is still loading\. Trying again/).waitFor();
    expect((await chat.ended()).status).toBe("done");
    await chat.page.locator("header").getByText("SmolLM2-135M-Instruct").waitFor();
  });

  const failures = [
    { word: "error", says: /broke off[^]*ran out of memory/, keeps: /^The sky/ },
    { word: "cut", says: /Interrupted[^]*Retry/, keeps: /^The sky/ },
    { word: "destroy", says: /Interrupted[^]*Retry/, keeps: /^The sky/ },
    { word: "too-long", says: /too long for the model[^]*Start a new chat/, keeps: /^$/ },
    { word: "refused", says: /refused[^]*temperature is out of range[^]*req-mock/, keeps: /^$/ },
    { word: "busy", says: /busy[^]*wait 7 s[^]*Retry/, keeps: /^$/ },
  ];
  for (const { word, says, keeps } of failures) {
    it(`tells what happened and offers a retry: ${word}`, async () => {
      chat = await ChatPage.open(browser, mock.url);
      await chat.ask(`Why? mock:${word}`);
      const { status, text } = await chat.ended();
      expect(status).toBe("failed");
      expect(text).toMatch(keeps);
      expect(await problem().innerText()).toMatch(says);
      await problem().getByRole("button", { name: "Retry" }).click();
      await vi.waitFor(() => expect(mock.state.requests.length).toBe(2));
      await chat.ended();
      expect(await chat.replies.count()).toBe(1);
    });
  }

  it("counts down to the time of the next try", async () => {
    chat = await ChatPage.open(browser, mock.url);
    await chat.ask("Why? mock:limit");
    await chat.ended();
    const retry = problem().getByRole("button", { name: /^Retry in \d+ s$/ });
    const before = await retry.innerText();
    expect(await retry.isDisabled()).toBe(true);
    await vi.waitFor(async () => expect(await retry.innerText()).not.toBe(before), { timeout: 10_000 });
  });

  it("offers no retry where the budget is used up", async () => {
    chat = await ChatPage.open(browser, mock.url);
    await chat.ask("Why? mock:quota");
    await chat.ended();
    expect(await problem().innerText()).toMatch(/budget of this month is used up/);
    expect(await problem().getByRole("button").count()).toBe(0);
  });

  it("tells the place in line, what was given up, and who answered", async () => {
    chat = await ChatPage.open(browser, mock.url);
    await chat.ask("Why? mock:line");
    await chat.lastReply.getByText("Number 3 in line, about 12 s to the first word.").waitFor();
    mock.state.isNext = true;
    expect((await chat.ended()).status).toBe("done");
    const note = await chat.lastReply.locator(".note").innerText();
    expect(note).toMatch(/^The server is busy: this reply is at most 512 tokens long\./);
    expect(note).toMatch(/lab\/small answers/);
    await chat.lastReply.locator("summary").click();
    expect(await chat.lastReply.locator("dl").innerText()).toMatch(/lab\/small/);
    expect(await chat.axe()).toEqual([]);
  });

  it("asks the model that was picked, also after a reload", async () => {
    await mock.close();
    mock = await startMock({ hasChoice: true });
    chat = await ChatPage.open(browser, mock.url);
    const picker = chat.page.getByLabel("Model", { exact: true });
    expect(await picker.locator("option").allInnerTexts()).toEqual([
      "Automatic",
      "SmolLM2-135M-Instruct",
      "lab/big (Code and mathematics; reasoning)",
    ]);
    const asked = async () => {
      await chat.ask("Why?");
      await chat.ended();
      return mock.state.requests.at(-1)?.model;
    };
    expect(await asked()).toBe("SmolLM2-135M-Instruct");
    await picker.selectOption("lab/big");
    expect(await asked()).toBe("lab/big");
    await picker.selectOption("auto");
    await chat.page.reload();
    await chat.box.waitFor();
    expect(await asked()).toBe("auto");
    expect(await chat.axe()).toEqual([]);
  });

  it("says that the server is gone, and goes on when it's back", async () => {
    chat = await ChatPage.open(browser, mock.url);
    const { port } = new URL(mock.url);
    await mock.close();
    await chat.ask("Anyone?");
    await chat.ended();
    expect(await problem().innerText()).toMatch(/can’t be reached/);
    mock = await startMock({ port: Number(port) });
    await problem().getByRole("button", { name: "Retry" }).click();
    expect((await chat.ended()).status).toBe("done");
  });

  it("stops before the first token, by button and by Escape", async () => {
    chat = await ChatPage.open(browser, mock.url);
    for (const stop of [() => chat.stop.click(), () => chat.page.keyboard.press("Escape")]) {
      await chat.ask("mock:slow");
      await vi.waitFor(() => expect(mock.state.running).toBeGreaterThan(0));
      await chat.box.fill("a draft");
      await stop();
      expect(await chat.ended()).toEqual({ status: "stopped", text: "" });
      await chat.send.waitFor();
      expect(await chat.box.inputValue()).toBe("a draft");
    }
  });

  it("makes no request and runs no script for hostile text, now or after a reload", async () => {
    chat = await ChatPage.open(browser, mock.url);
    await chat.ask("mock:hostile");
    await chat.ended();
    const check = async () => {
      expect(await chat.page.evaluate(() => "pwned" in window)).toBe(false);
      expect(await chat.page.locator(".prose").locator("img, script, iframe, style").count()).toBe(0);
      expect(await chat.lastReply.getByText("https://canary.invalid/p.png?d=secret").count()).toBe(1);
    };
    await check();
    await chat.page.reload();
    await check();
    expect(chat.troubles).toEqual([]);
  });

  it("renders code with colours and a copy button, tables and links", async () => {
    chat = await ChatPage.open(browser, mock.url, { permissions: ["clipboard-read", "clipboard-write"] });
    await chat.ask("mock:rich");
    await chat.ended();
    await chat.lastReply.locator("pre .hljs-keyword").first().waitFor();
    await chat.page.getByRole("button", { name: "Copy code" }).click();
    expect(await chat.page.evaluate(() => navigator.clipboard.readText())).toMatch(/^use std::collections/);
    expect(await chat.lastReply.locator("td").count()).toBe(6);
    expect(await chat.lastReply.locator('a[rel~="noopener"][target="_blank"]').count()).toBe(1);
    expect(await chat.axe()).toEqual([]);
    expect(chat.troubles).toEqual([]);
  });

  it("follows the reply until the reader scrolls up", async () => {
    chat = await ChatPage.open(browser, mock.url);
    const gap = () =>
      chat.page
        .locator("main")
        .evaluate((it) => Math.round(it.scrollHeight - it.clientHeight - it.scrollTop));
    await chat.ask("mock:long");
    await chat.page.getByText("Paragraph 20:").waitFor();
    expect(await gap()).toBeLessThan(60);
    await chat.page.locator("main").hover();
    await chat.page.mouse.wheel(0, -300);
    const jump = chat.page.getByRole("button", { name: "Jump to latest" });
    await jump.waitFor();
    const top = await chat.page.locator("main").evaluate((it) => it.scrollTop);
    await chat.page.getByText("Paragraph 40:").waitFor();
    expect(await chat.page.locator("main").evaluate((it) => it.scrollTop)).toBe(top);
    await jump.click();
    expect(await gap()).toBeLessThan(60);
    await chat.page.getByText("Paragraph 50:").waitFor();
    expect(await gap()).toBeLessThan(60);
    expect(await jump.count()).toBe(0);
  });

  it("leaves an input method's Enter alone", async () => {
    chat = await ChatPage.open(browser, mock.url);
    await chat.box.fill("にほん");
    await chat.box.dispatchEvent("keydown", { key: "Enter", isComposing: true });
    await chat.box.dispatchEvent("keydown", { key: "Enter", keyCode: 229 });
    expect(await chat.replies.count()).toBe(0);
    await chat.page.keyboard.press("Enter");
    expect((await chat.ended()).status).toBe("done");
  });

  it("announces the finished reply once, not its tokens", async () => {
    chat = await ChatPage.open(browser, mock.url);
    await chat.page.evaluate(() => {
      const region = document.querySelector('[role="status"]') as Element;
      const heard: string[] = [];
      Object.assign(window, { heard });
      new MutationObserver(() => heard.push(region.textContent ?? "")).observe(region, {
        childList: true,
        characterData: true,
        subtree: true,
      });
    });
    await chat.ask("Why?");
    await chat.ended();
    const heard = () => chat.page.evaluate(() => (window as unknown as { heard: string[] }).heard);
    await vi.waitFor(async () => expect((await heard()).length).toBe(1));
    expect((await heard())[0]).toMatch(/^Motet: The sky is blue .* every direction\.$/);
  });
});
