import type { MarkedToken, Token, Tokens } from "marked";
import { createElement, Fragment, type ReactNode } from "react";
import { CodeBlock } from "./CodeBlock";
import { resolveEntities, safeAddress, showDirection } from "./safe";

/** How the elements of one block are made. */
export interface View {
  /** The block may still grow. */
  isOpen: boolean;
}

/**
 * Markdown tokens as React elements. No HTML is built on the way: raw HTML in the text shows as text, so nothing a
 * model writes can become an element, a request or a script.
 */
export function renderTokens(tokens: readonly Token[], view: View): ReactNode {
  return tokens.map((token, index) => <Fragment key={index}>{renderToken(token, view)}</Fragment>);
}

function renderToken(token: Token, view: View): ReactNode {
  return renderBlock(token as MarkedToken, view) ?? renderInline(token as MarkedToken, view);
}

function renderBlock(token: MarkedToken, view: View): ReactNode {
  switch (token.type) {
    case "paragraph":
      return <p dir="auto">{renderTokens(token.tokens, view)}</p>;
    case "heading":
      // The page's own headings are levels 1 and 2.
      return createElement(
        `h${Math.min(token.depth + 2, 6)}`,
        { dir: "auto", className: `h${token.depth}` },
        renderTokens(token.tokens, view),
      );
    case "code":
      return (
        <CodeBlock
          code={token.text}
          language={languageOf(token)}
          isOpen={view.isOpen && !isFenced(token.raw)}
        />
      );
    case "list":
      return renderList(token, view);
    case "table":
      return renderTable(token, view);
    case "blockquote":
      return <blockquote>{renderTokens(token.tokens, view)}</blockquote>;
    case "hr":
      return <hr />;
    case "html":
      return token.block ? <p className="as-typed">{token.text}</p> : null;
    default:
      return null;
  }
}

function renderInline(token: MarkedToken, view: View): ReactNode {
  switch (token.type) {
    case "text":
      return token.tokens ? renderTokens(token.tokens, view) : resolveEntities(token.text);
    case "escape":
      return token.text;
    case "strong":
      return <strong>{renderTokens(token.tokens, view)}</strong>;
    case "em":
      return <em>{renderTokens(token.tokens, view)}</em>;
    case "del":
      return <del>{renderTokens(token.tokens, view)}</del>;
    case "codespan":
      return <code>{showDirection(token.text)}</code>;
    case "br":
      return <br />;
    case "html":
      return /^<br\s*\/?>$/i.test(token.text) ? <br /> : token.text;
    case "link":
      return <Link href={token.href}>{renderTokens(token.tokens, view)}</Link>;
    case "image":
      return <ImageLink href={token.href} alt={token.text} />;
    case "checkbox":
      return <input type="checkbox" checked={token.checked} disabled aria-label="Task" />;
    default:
      return null;
  }
}

function Link({ href, children }: { href: string; children: ReactNode }) {
  const address = safeAddress(href);
  if (address === null) return <span>{children}</span>;
  return (
    <a href={address} title={showDirection(address)} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

/** An image is never loaded on its own: its address could carry the reader's words away. It shows in full instead. */
function ImageLink({ href, alt }: { href: string; alt: string }) {
  const address = safeAddress(href);
  if (address === null) return <span>[image: {alt || "no description"}]</span>;
  return (
    <Link href={address}>
      image{alt && `: ${alt}`} ({showDirection(address)})
    </Link>
  );
}

function renderList(list: Tokens.List, view: View): ReactNode {
  const items = list.items.map((item, index) => (
    <li key={index} dir="auto" className={item.task ? "task" : undefined}>
      {renderTokens(item.tokens, view)}
    </li>
  ));
  if (!list.ordered) return <ul>{items}</ul>;
  return <ol start={list.start === "" ? 1 : list.start}>{items}</ol>;
}

function renderTable(table: Tokens.Table, view: View): ReactNode {
  const cell = (Tag: "th" | "td") => (it: Tokens.TableCell, index: number) => (
    <Tag key={index} dir="auto" style={it.align ? { textAlign: it.align } : undefined}>
      {renderTokens(it.tokens, view)}
    </Tag>
  );
  return (
    <div className="table" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>{table.header.map(cell("th"))}</tr>
        </thead>
        <tbody>
          {table.rows.map((row, index) => (
            <tr key={index}>{row.map(cell("td"))}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Whether the code's closing fence is there already. */
function isFenced(raw: string): boolean {
  return /\n {0,3}(?:`{3,}|~{3,})\s*$/.test(raw);
}

/** The first word after the fence, without anything that isn't part of a language's name. */
function languageOf(code: Tokens.Code): string {
  return /^[\w+#.-]{1,24}/.exec(code.lang ?? "")?.[0].toLowerCase() ?? "";
}
