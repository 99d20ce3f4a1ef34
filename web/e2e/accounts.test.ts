// A new server that asks for accounts, from the first one to what it can do. The tests go on from each other.
import type { Browser, Locator } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ChatPage } from "./chat-page";
import { launch } from "./chromium.mjs";
import { isBuilt, startMotet, type Motet } from "./motet-server.mjs";

const MOBILE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const PASSWORD = "correct horse";
const NEW_PASSWORD = "battery staple";
const SHORT = "Say hello in one short sentence.";

let browser: Browser;
let motet: Motet;
let chat: ChatPage;

const button = (name: string | RegExp): Locator =>
  chat.page.getByRole("button", typeof name === "string" ? { name, exact: true } : { name });
const field = (name: string): Locator => chat.page.getByLabel(name, { exact: true });
const dialog = (): Locator => chat.page.getByRole("dialog", { name: "Account" });
const alert = (): Locator => chat.page.getByRole("alert").filter({ hasText: /./ });

async function signIn(password: string): Promise<void> {
  await field("Login").fill("ann");
  await field("Password").fill(password);
  await button("Sign in").click();
}

async function openAccount(section: string): Promise<void> {
  await button(/^Account: /).click();
  await dialog().waitFor();
  await dialog().getByRole("navigation").getByRole("button", { name: section, exact: true }).click();
  await dialog().getByRole("region", { name: section, exact: true }).waitFor();
}

/** What went wrong, without the refusals that the tests cause, which browsers note as errors, too. */
function troubles(): string[] {
  return chat.troubles.filter((text) => !/status of 4(01|03)/.test(text));
}

describe.skipIf(!isBuilt)("accounts", () => {
  beforeAll(async () => {
    motet = await startMotet();
    browser = await launch();
    chat = await ChatPage.visit(browser, motet.url);
  });
  afterAll(async () => {
    await browser.close();
    await motet.close();
  });

  it("begin with the first one, by keyboard alone", async () => {
    await chat.page.getByRole("heading", { name: "Make the first account" }).waitFor();
    expect(await chat.axe()).toEqual([]);
    const { keyboard } = chat.page;
    for (const text of ["ann", "Ann", PASSWORD]) {
      await keyboard.type(text);
      await keyboard.press("Tab");
    }
    await keyboard.press("Enter");
    await chat.box.waitFor();
    expect(await chat.hasFocus(chat.box)).toBe(true);
    await button("Account: Ann").waitFor();
  });

  it("can chat, before and after a reload", async () => {
    await chat.ask(SHORT);
    expect((await chat.ended()).status).toBe("done");
    await chat.page.reload();
    await chat.box.waitFor();
    expect(await chat.replies.count()).toBe(1);
    await button("Write again").click();
    expect((await chat.ended()).status).toBe("done");
    expect(troubles()).toEqual([]);
  });

  it("make keys that are shown once, work, and are revoked", async () => {
    await openAccount("API keys");
    await field("Name").fill("laptop");
    await button("Make key").click();
    const secret = dialog().getByRole("group", { name: /The key “laptop”/ });
    await secret.waitFor();
    expect(await chat.hasFocus(secret)).toBe(true);
    expect(await chat.axe()).toEqual([]);
    const authorization = `Bearer ${await secret.locator("code").innerText()}`;
    const models = () => fetch(`${motet.url}/v1/models`, { headers: { authorization } });
    expect((await models()).status).toBe(200);
    await button("Done").click();
    await button("Revoke").click();
    await dialog()
      .getByRole("group", { name: "Revoke “laptop”?" })
      .getByRole("button", { name: "Revoke" })
      .click();
    await dialog().getByText("revoked", { exact: true }).waitFor();
    expect((await models()).status).toBe(401);
    await chat.page.keyboard.press("Escape");
    expect(await chat.hasFocus(button("Account: Ann"))).toBe(true);
  });

  it("have a name, devices, usage and users", async () => {
    await openAccount("Profile");
    await field("Display name").fill("Ann B.");
    await button("Save name").click();
    await dialog().getByText("Saved.").waitFor();
    for (const [section, shows] of [
      ["Devices", "this device"],
      ["Usage", "Together"],
      ["Users", "ann, owner, tier default"],
    ] as const) {
      await button(section).click();
      await dialog().getByText(shows).waitFor();
      expect(await chat.axe(), section).toEqual([]);
    }
    await field("Login").fill("bob");
    await button("Make user").click();
    await dialog()
      .getByRole("group", { name: /The password of “bob”/ })
      .waitFor();
    await button("Done").click();
    await dialog().getByText("bob, member, tier default").waitFor();
    await chat.page.keyboard.press("Escape");
    await button("Account: Ann B.").waitFor();
    expect(troubles()).toEqual([]);
  });

  it("change the password, which ends other sessions and keeps what was written there", async () => {
    const here = chat;
    const other = await ChatPage.visit(browser, motet.url);
    chat = other;
    await signIn(PASSWORD);
    await chat.ask(SHORT);
    await chat.ended();
    await chat.box.fill("a draft");

    chat = here;
    await openAccount("Profile");
    await field("Current password").fill("wrong horse");
    await field("New password").fill(NEW_PASSWORD);
    await field("New password again").fill(NEW_PASSWORD);
    await button("Change password").click();
    expect(await alert().innerText()).toMatch(/current password is wrong/);
    await field("Current password").fill(PASSWORD);
    await button("Change password").click();
    await dialog().getByText("Saved.").waitFor();
    await chat.page.keyboard.press("Escape");

    chat = other;
    await button("Write again").click();
    await chat.page.getByText("Your session has ended.").waitFor();
    await signIn(NEW_PASSWORD);
    await chat.box.waitFor();
    expect(await chat.box.inputValue()).toBe("a draft");
    expect(await chat.replies.count()).toBe(1);
    expect(await chat.lastReply.innerText()).toMatch(/You are signed out/);
    await button("Retry").click();
    expect((await chat.ended()).status).toBe("done");
    await other.close();
    chat = here;
  });

  it("sign out, which leaves nothing behind, and in again", async () => {
    await openAccount("Profile");
    await button("Sign out").click();
    await chat.page.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(await chat.hasFocus(field("Login"))).toBe(true);
    expect(await chat.axe()).toEqual([]);
    await signIn("wrong horse");
    expect(await alert().innerText()).toMatch(/login or the password is wrong/);
    await signIn(NEW_PASSWORD);
    await chat.box.waitFor();
    expect(await chat.replies.count()).toBe(0);
    await chat.ask(SHORT);
    expect((await chat.ended()).status).toBe("done");
  });

  it("fit a phone", async () => {
    await chat.close();
    chat = await ChatPage.visit(browser, motet.url, MOBILE);
    await signIn(NEW_PASSWORD);
    await chat.box.waitFor();
    await openAccount("Profile");
    for (const section of ["Profile", "Devices", "API keys", "Usage", "Users"]) {
      await button(section).click();
      const body = dialog().getByRole("region", { name: section, exact: true });
      await body.waitFor();
      expect(await body.evaluate((it) => it.scrollWidth > it.clientWidth), section).toBe(false);
    }
  });
});
