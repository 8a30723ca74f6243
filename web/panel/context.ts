/**
 * What the page tells of itself beside a question. A mistake of the page costs its part of the context
 * and never the person's question.
 */
import type { Context } from "./model.ts";

export type Given<Value> = Value | (() => Value | Promise<Value>);
export type PageContext = Readonly<Record<string, unknown>> | null;

export interface Sources {
  readonly pageContext: Given<PageContext | undefined>;
  readonly selectedBlockId: Given<string | null | undefined>;
  readonly selectedText: Given<string | null | undefined>;
  /** What is selected in the page, for a page that does not tell. */
  readonly selection: string;
  readonly page: Document;
  readonly panel: Element;
}

/** A function of the page may take this long, in milliseconds; then the question goes without its part. */
const PATIENCE = 5_000;
const HEADINGS = { count: 100, length: 200 };
/** What is left where the proxy takes no more: enough to know what the page is about. */
const FEW_HEADINGS = { count: 30, length: 80 };
const SHORT_SELECTION = 4_000;

/** Asks the page. Never rejects. */
export async function contextOf(sources: Sources, patience = PATIENCE): Promise<Context> {
  const { page, panel, selection } = sources;
  const [told, block, text] = await Promise.all([
    given(sources.pageContext, "pageContext", patience),
    given(sources.selectedBlockId, "selectedBlockId", patience),
    sources.selectedText === undefined
      ? selection
      : given(sources.selectedText, "selectedText", patience),
  ]);
  const pageContext = asContext(told);
  const selectedBlockId = asText(block, "selectedBlockId");
  const selectedText = asText(text, "selectedText");
  return {
    pageContext: pageContext === undefined ? outlineOf(page, panel, HEADINGS) : pageContext,
    selectedBlockId,
    selectedText,
    smaller: {
      pageContext: pageContext === null ? null : outlineOf(page, panel, FEW_HEADINGS),
      selectedBlockId: selectedBlockId === null ? null : beginningOf(selectedBlockId, 200),
      selectedText: selectedText === null ? null : beginningOf(selectedText, SHORT_SELECTION),
    },
  };
}

/** At most `length` UTF-16 units of a text, not cut inside a character. */
export function beginningOf(text: string, length: number): string {
  if (text.length <= length) return text;
  const last = text.charCodeAt(length - 1);
  return text.slice(0, last >= 0xd800 && last < 0xdc00 ? length - 1 : length);
}

/** One line of at most `length` characters. */
export function shortened(text: string, length: number): string {
  const line = text.replace(/\s+/g, " ");
  const characters = [...line];
  return characters.length <= length ? line : `${characters.slice(0, length - 1).join("")}…`;
}

/** What a page shows if it does not say so itself: its title and its headings. */
function outlineOf(
  page: Document,
  panel: Element,
  most: { readonly count: number; readonly length: number },
): Record<string, unknown> {
  const headings = [...page.querySelectorAll("h1, h2, h3")].filter(
    (heading) => !panel.contains(heading),
  );
  return {
    title: shortened(page.title, 300),
    outline: headings.slice(0, most.count).map((heading) => ({
      level: Number(heading.tagName[1]),
      text: shortened(heading.textContent?.trim() ?? "", most.length),
    })),
  };
}

async function given<Value>(
  source: Given<Value>,
  name: string,
  patience: number,
): Promise<Value | undefined> {
  if (typeof source !== "function") return source;
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => {
        reject(new Error(`hermes-panel: \`${name}\` did not answer in ${patience} ms.`));
      }, patience);
    });
    return await Promise.race([(source as () => Value | Promise<Value>)(), late]);
  } catch (error) {
    reportError(error);
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

/** The context as JSON would carry it; undefined for none, and for what is no object of JSON. */
function asContext(told: unknown): PageContext | undefined {
  if (told === undefined || told === null) return told;
  try {
    const carried: unknown = JSON.parse(JSON.stringify(told));
    if (typeof carried === "object" && carried !== null && !Array.isArray(carried)) {
      return carried as PageContext;
    }
    throw new TypeError("it is none");
  } catch (error) {
    const message = "hermes-panel: `pageContext` must be an object that can be written as JSON.";
    reportError(new TypeError(message, { cause: error }));
    return undefined;
  }
}

function asText(told: unknown, name: string): string | null {
  if (told === undefined || told === null || told === "") return null;
  if (typeof told === "string") return told;
  if (typeof told === "number" || typeof told === "bigint") return String(told);
  reportError(new TypeError(`hermes-panel: \`${name}\` must be a text or null.`));
  return null;
}
