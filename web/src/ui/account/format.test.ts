import { describe, expect, it } from "vitest";
import { amount, deviceName } from "./format";

describe("deviceName", () => {
  const cases: [string, string][] = [
    ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"],
    [
      "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0",
      "Edge on Windows",
    ],
    [
      "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1",
      "Safari on iOS",
    ],
    [
      "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36",
      "Chrome on Android",
    ],
    ["curl/8.5.0", "curl"],
    ["python-requests/2", "python-requests/2"],
    ["", "Unknown device"],
  ];
  for (const [userAgent, name] of cases) {
    it(`${name} of “${userAgent.slice(0, 30)}”`, () => expect(deviceName(userAgent)).toBe(name));
  }
});

describe("amount", () => {
  const cases: [number, string][] = [
    [0, "0.00"],
    [20, "0.00"],
    [1234, "0.0012"],
    [1_500_000, "1.50"],
  ];
  for (const [micros, text] of cases) it(`${micros} → ${text}`, () => expect(amount(micros)).toBe(text));
});
