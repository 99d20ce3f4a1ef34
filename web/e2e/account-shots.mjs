// Pictures of signing in and of the account pages, for looking at: `npm run shots:accounts`. Needs the server's binary.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { launch } from "./chromium.mjs";
import { startMotet } from "./motet-server.mjs";

const OUT = fileURLToPath(new URL("out/", import.meta.url));
const DESKTOP = { viewport: { width: 1280, height: 800 } };
const MOBILE = {
  viewport: { width: 360, height: 740 },
  deviceScaleFactor: 2,
  hasTouch: true,
  isMobile: true,
};
const LOOKS = {
  light: { ...DESKTOP, colorScheme: "light" },
  dark: { ...DESKTOP, colorScheme: "dark" },
  mobile: { ...MOBILE, colorScheme: "light" },
};
const PASSWORD = "correct horse";

mkdirSync(OUT, { recursive: true });
const motet = await startMotet();
const browser = await launch();
try {
  for (const [look, options] of Object.entries(LOOKS)) await shoot(look, options, look === "light");
} finally {
  await browser.close();
  await motet.close();
}

async function shoot(look, options, isFirst) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const picture = (name) => page.screenshot({ path: `${OUT}account-${look}-${name}.png` });
  const press = (name) => page.getByRole("button", { name, exact: true }).click();
  await page.goto(motet.url);
  await page.getByLabel("Login", { exact: true }).fill("ann");
  await page.getByLabel("Password", { exact: true }).fill(isFirst ? PASSWORD : "wrong horse");
  if (isFirst) {
    await picture("setup");
    await press("Make account");
  } else {
    await press("Sign in");
    await page.getByRole("alert").filter({ hasText: /wrong/ }).waitFor();
    await picture("sign-in");
    await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
    await press("Sign in");
  }
  await page.getByLabel("Your message").fill("Say hello.");
  await press("Send");
  await page.locator('.reply[aria-busy="false"]').waitFor();
  await picture("chat");
  await page.getByRole("button", { name: /^Account: / }).click();
  for (const section of ["Profile", "Devices", "Usage"]) {
    await press(section);
    await page.waitForTimeout(400);
    await picture(section.toLowerCase());
  }
  await press("API keys");
  await page.getByLabel("Name", { exact: true }).fill(`${look} laptop`);
  await press("Make key");
  await page.getByRole("group", { name: /The key/ }).waitFor();
  await picture("key");
  await press("Done");
  await press("Users");
  await page.getByLabel("Login", { exact: true }).fill(`${look}-bob`);
  await press("Make user");
  await page.getByRole("group", { name: /The password/ }).waitFor();
  await press("Done");
  await page.getByLabel(`Change ${look}-bob`).click();
  await press("Remove");
  await picture("users");
  await context.close();
}
