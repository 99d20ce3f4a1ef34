// Pictures of the page's main states, for looking at: `npm run shots`. From MOTET_URL, else from the mock server.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { launch } from "./chromium.mjs";
import { startMock } from "./mock-server.mjs";

const OUT = fileURLToPath(new URL("out/", import.meta.url));
const SIZES = {
  desktop: { viewport: { width: 1280, height: 800 } },
  mobile: { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true },
};
const STATES = process.env.MOTET_URL
  ? { reply: "Give me five ideas for a rainy Sunday at home." }
  : {
      reply: "Show me how to count words in Rust. mock:rich",
      error: "Tell me about rivers. mock:error",
    };

mkdirSync(OUT, { recursive: true });
const mock = process.env.MOTET_URL ? null : await startMock();
const url = process.env.MOTET_URL ?? mock.url;
const browser = await launch();
try {
  for (const [size, options] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"])
      await shoot(`${size}-${colorScheme}`, { ...options, colorScheme });
  }
} finally {
  await browser.close();
  await mock?.close();
}

async function shoot(name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  await page.goto(url);
  await page.locator('header [data-kind="ready"]').waitFor();
  await page.screenshot({ path: `${OUT}${name}-empty.png` });
  for (const [state, text] of Object.entries(STATES)) {
    await page.getByLabel("Your message").fill(text);
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.locator(".reply").last().locator(".prose").waitFor();
    if (state === "reply") await page.screenshot({ path: `${OUT}${name}-streaming.png` });
    await page.getByRole("button", { name: "Send", exact: true }).waitFor();
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${OUT}${name}-${state}.png` });
  }
  await context.close();
}
