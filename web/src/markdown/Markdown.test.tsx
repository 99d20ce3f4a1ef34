import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { HOSTILE } from "../../e2e/mock-replies.mjs";
import { highlight } from "./highlight";
import { Markdown } from "./Markdown";

function html(text: string, isOpen = false): string {
  return renderToStaticMarkup(<Markdown text={text} isOpen={isOpen} />);
}

function elements(text: string, selector: string): Element[] {
  return [...new DOMParser().parseFromString(html(text), "text/html").querySelectorAll(selector)];
}

const SHAPES: { name: string; text: string; contains: string }[] = [
  {
    name: "headings below the page's own",
    text: "# A\n\n###### B",
    contains: '<h3 dir="auto" class="h1">A</h3>',
  },
  { name: "emphasis", text: "**a** *b* ~~c~~", contains: "<strong>a</strong> <em>b</em> <del>c</del>" },
  { name: "code with its language", text: "```Rust,ignore\nfn a() {}\n```", contains: "<span>rust</span>" },
  { name: "a list's first number", text: "3. a\n4. b", contains: '<ol start="3">' },
  { name: "tasks", text: "- [x] done", contains: 'type="checkbox"' },
  { name: "tables", text: "| a |\n|--:|\n| 1 |", contains: '<td dir="auto" style="text-align:right">1</td>' },
  {
    name: "links in a new window",
    text: "[a](https://example.org)",
    contains: 'rel="noopener noreferrer nofollow"',
  },
  {
    name: "reference links",
    text: "see [a][r]\n\n[r]: https://example.org/x",
    contains: "https://example.org/x",
  },
  { name: "character references", text: "caf&eacute; &lt;b&gt; &#169;", contains: "café &lt;b&gt; ©" },
  { name: "raw html as text", text: "a <b>bold</b> word", contains: "a &lt;b&gt;bold&lt;/b&gt; word" },
  { name: "line breaks in cells", text: "| a |\n|--|\n| x<br>y |", contains: "x<br/>y" },
  { name: "direction controls in code", text: "`a\u202Eb`", contains: "a[U+202E]b" },
];

describe("Markdown", () => {
  for (const { name, text, contains } of SHAPES) {
    it(`renders ${name}`, () => expect(html(text)).toContain(contains));
  }

  it("closes what is half written", () => {
    expect(html("a **bo", true)).toContain("<strong>bo</strong>");
    expect(html("see [docs](https://exam", true)).not.toContain("<a");
    expect(html("```js\nlet a", true)).toContain("let a");
  });

  it("shows a block too long to parse as it was typed", () => {
    expect(html("*".repeat(1_000_000))).toContain("as-typed");
  });

  for (let at = 1; at <= HOSTILE.length; at += 7) {
    const text = HOSTILE.slice(0, at);
    it(`makes no element or address of hostile text, cut at ${at}`, () => {
      const page = new DOMParser().parseFromString(html(text, true), "text/html");
      expect(page.querySelectorAll("img, script, iframe, svg:not(.icon), style, object, embed").length).toBe(
        0,
      );
      for (const element of page.querySelectorAll("*")) {
        for (const { name } of element.attributes) expect(name.startsWith("on")).toBe(false);
      }
      for (const link of page.querySelectorAll("a")) expect(link.protocol).toMatch(/^(https?|mailto):$/);
    });
  }
});

describe("links", () => {
  const bad = [
    "javascript:alert(1)",
    "JaVaScript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "//evil.test/x",
    "/v1/x",
  ];
  for (const href of bad) {
    it(`shows ${href} as text`, () => expect(elements(`[a](${href})`, "a").length).toBe(0));
  }

  it("shows an image as a link with its whole address", () => {
    const [link] = elements("![p](https://canary.test/p.png?d=secret)", "a");
    expect(link?.textContent).toBe("image: p (https://canary.test/p.png?d=secret)");
  });
});

describe("highlight", () => {
  it("colours known languages and escapes the code", () => {
    const coloured = highlight('let a = "<img src=x>";', "js") ?? "";
    expect(coloured).toContain('class="hljs-keyword"');
    expect(coloured).not.toContain("<img");
  });

  it("leaves unknown languages alone", () => expect(highlight("x", "klingon")).toBeNull());
});
