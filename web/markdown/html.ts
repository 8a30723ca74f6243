/** Markdown of the agent -> pieces of safe DOM. The text is the agent's, so nothing in it is trusted. */
import createPurifier, { type Config } from "dompurify";
import { Marked, type Token, type TokensList } from "marked";

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    // Raw HTML is shown as what was written: an answer about <div> must not lose its subject.
    html: ({ text }) => (/^<br\s*\/?>$/i.test(text.trim()) ? "<br>" : escaped(text)),
    // A picture elsewhere would be fetched unasked and tell its server what the agent put into the
    // address, so it becomes a link.
    image: ({ href, text }) => `<a href="${escaped(href)}">🖼 ${escaped(text || href)}</a>`,
  },
});

/** Only what Markdown makes; no styles, ids, forms, frames or pictures. */
const ALLOWED: Config & { RETURN_DOM_FRAGMENT: true } = {
  ALLOWED_TAGS:
    "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr input li ol p pre strong table tbody td th thead tr ul".split(
      " ",
    ),
  ALLOWED_ATTR: ["align", "checked", "class", "disabled", "href", "start", "title", "type"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto|tel):/i,
  // The purifier holds every attribute to be an address that it does not know to be none.
  ADD_URI_SAFE_ATTR: ["align", "start", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

/** One top-level piece of a text. Equal `key`s give equal DOM, so a piece is built only once. */
export interface Block {
  readonly key: string;
  build(): DocumentFragment;
}

/** Cuts a text into its top-level pieces: paragraphs, lists, code, tables. */
export function blocksOf(text: string): Block[] {
  const tokens = marked.lexer(text);
  const links = Object.keys(tokens.links).length === 0 ? "" : JSON.stringify(tokens.links);
  const blocks: Block[] = [];
  for (const token of tokens) {
    if (token.type === "space" || token.type === "def") continue;
    blocks.push({
      key: `${token.type}\n${token.raw}\n${links}`,
      build: () => built(token, tokens),
    });
  }
  return blocks;
}

function built(token: Token, all: TokensList): DocumentFragment {
  const html = marked.parser(Object.assign([token], { links: all.links }));
  const fragment = purifier().sanitize(html, ALLOWED);
  for (const element of fragment.querySelectorAll("[class]")) {
    const language = /(?:^|\s)language-([\w+#.-]{1,30})/.exec(element.className)?.[1];
    element.removeAttribute("class");
    if (language !== undefined) element.setAttribute("data-language", language);
  }
  for (const box of fragment.querySelectorAll("input")) {
    const mark = document.createElement("span");
    mark.textContent = box.hasAttribute("checked") ? "☑ " : "☐ ";
    box.replaceWith(mark);
  }
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const heading of fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    // Below the page's own headings, and never as large as these.
    const lower = document.createElement(`h${Math.min(6, Number(heading.tagName[1]) + 2)}`);
    lower.append(...heading.childNodes);
    heading.replaceWith(lower);
  }
  // A piece stands on the side where its words begin; code always reads from left to right.
  for (const piece of fragment.children) piece.setAttribute("dir", "auto");
  for (const code of fragment.querySelectorAll("pre, code")) code.setAttribute("dir", "ltr");
  return fragment;
}

let made: ReturnType<typeof createPurifier> | undefined;
/** An own instance: hooks of a host page's DOMPurify must not reach in here. */
function purifier(): ReturnType<typeof createPurifier> {
  made ??= createPurifier(window);
  return made;
}

function escaped(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
