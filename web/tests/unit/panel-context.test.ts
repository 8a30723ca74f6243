// @vitest-environment happy-dom
/** What the panel makes of whatever a page tells of itself. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { contextOf, type Sources } from "../../panel/context.ts";

const reported: unknown[] = [];

beforeEach(() => {
  document.title = "The page";
  document.body.innerHTML = "<h1>One</h1><h2>Two</h2><p>text</p><aside><h2>Panel</h2></aside>";
  vi.stubGlobal("reportError", (error: unknown) => reported.push(error));
});
afterEach(() => {
  vi.unstubAllGlobals();
  reported.length = 0;
});

const OUTLINE = {
  title: "The page",
  outline: [
    { level: 1, text: "One" },
    { level: 2, text: "Two" },
  ],
};

function told(sources: Partial<Sources> = {}, patience?: number): ReturnType<typeof contextOf> {
  const panel = document.querySelector("aside") as Element;
  const none = { pageContext: undefined, selectedBlockId: undefined, selectedText: undefined };
  return contextOf({ ...none, selection: "", page: document, panel, ...sources }, patience);
}

test("a page that tells nothing is its title and its headings, without the panel's own", async () => {
  const context = await told({ selection: "marked" });
  expect(context).toMatchObject({
    pageContext: OUTLINE,
    selectedBlockId: null,
    selectedText: "marked",
  });
  expect(reported).toEqual([]);
});

test("values and functions, also slow ones, are taken as they are; null is nothing at all", async () => {
  const context = await told({
    pageContext: () => Promise.resolve({ own: [1, "two"] }),
    selectedBlockId: "b-1",
    selectedText: () => "own words",
    selection: "not this",
  });
  expect(context).toMatchObject({
    pageContext: { own: [1, "two"] },
    selectedBlockId: "b-1",
    selectedText: "own words",
  });
  expect((await told({ pageContext: null, selectedText: null, selection: "x" })).pageContext).toBe(
    null,
  );
  expect((await told({ selectedText: null, selection: "x" })).selectedText).toBe(null);
});

const circular: Record<string, unknown> = {};
circular["itself"] = circular;
test.each([
  [
    "throws",
    () => {
      throw new Error("mistake");
    },
  ],
  ["rejects", () => Promise.reject(new Error("mistake"))],
  ["never answers", () => new Promise<never>(() => undefined)],
  ["tells a circle", () => circular],
  ["tells a number too large for JSON", () => ({ big: 1n })],
  ["tells a list", () => [1] as never],
  ["tells a text", () => "text" as never],
  [
    "tells what throws when it is read",
    () => ({
      get bad() {
        throw new Error("mistake");
      },
    }),
  ],
])(
  "a page whose function %s is known by its outline, and its owner is told",
  async (_how, pageContext) => {
    const context = await told({ pageContext: pageContext as never, selection: "kept" }, 20);
    expect(context.pageContext).toEqual(OUTLINE);
    expect(context.selectedText).toBe("kept");
    expect(reported).toHaveLength(1);
  },
);

test("an id that is a number is its digits; what is no text is left out", async () => {
  expect((await told({ selectedBlockId: 42 as never })).selectedBlockId).toBe("42");
  const odd = await told({ selectedBlockId: {} as never, selectedText: (() => 4n) as never });
  expect(odd).toMatchObject({ selectedBlockId: null, selectedText: "4" });
  expect(reported).toHaveLength(1);
});

test("what is smaller fits beside the words of any question", async () => {
  const heading = "\u{1F331}".repeat(3_000);
  document.title = heading;
  document.body.innerHTML = `<h1>${heading}</h1>`.repeat(500) + "<aside></aside>";
  const { smaller } = await told({
    pageContext: { text: "x".repeat(1_000_000) },
    selectedBlockId: "b".repeat(10_000),
    selectedText: "\u{1F331}".repeat(100_000),
  });
  expect(new TextEncoder().encode(JSON.stringify(smaller)).length).toBeLessThan(32_768);
  expect(smaller?.selectedText).not.toMatch(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])/);
  expect((await told({ pageContext: null })).smaller?.pageContext).toBe(null);
});
