import DOMPurify from "dompurify";

/** The only way for HTML text into the page: converted first, sanitised after, down to coloured spans. */
export function safeSpans(html: string): string {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: ["span"],
    ALLOWED_ATTR: ["class"],
    ALLOW_DATA_ATTR: false,
  });
}

/**
 * A link's address if a click on it is safe: absolute http(s) or mailto. Anything else (`javascript:`, `data:`,
 * paths on this server) is null and is shown as text.
 */
export function safeAddress(href: string): string | null {
  let url: URL;
  try {
    url = new URL(href.trim());
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

// Direction controls reorder what is shown: code and addresses would read differently from what they are.
const DIRECTION = /[\u202a-\u202e\u2066-\u2069]/g;

/** `text` with every direction control made visible, as `[U+202E]`. */
export function showDirection(text: string): string {
  return text.replace(DIRECTION, (char) => `[U+${char.charCodeAt(0).toString(16).toUpperCase()}]`);
}

const ENTITY = /&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][a-z\d]{1,31});/gi;

/** Resolves character references (`&amp;`, `&#233;`), which markdown text may hold. */
export function resolveEntities(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(ENTITY, (entity) => {
    const box = document.createElement("textarea");
    box.innerHTML = entity;
    return box.value;
  });
}
