/** The panel in pages of all kinds. The browser door is played by the test: what it says is not the point here. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Browser } from "./browser.ts";
import { ROOT } from "./processes.ts";

const ORIGIN = "http://notes.test";
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
  "require-trusted-types-for 'script'; trusted-types lit-html dompurify; base-uri 'none'";
const SESSION = "mnote_doc_1_trace_1";

let browser: Browser;
let page: Page;
/** Bodies of the runs that were started. */
let started: Record<string, unknown>[];

/** Opens a page that includes the panel and nothing else. */
async function open(host: { readonly css?: string; readonly dir?: string } = {}): Promise<void> {
  browser = await Browser.start({ width: 800, height: 700 });
  page = await browser.page();
  started = [];
  const script = await readFile(join(ROOT, "web/dist/panel/hermes-panel.js"), "utf8");
  const json = (value: object): { contentType: string; body: string } => ({
    contentType: "application/json",
    body: JSON.stringify({ ok: true, traceId: "trace_1", ...value }),
  });
  await page.route(`${ORIGIN}/**`, async (route) => {
    const { pathname } = new URL(route.request().url());
    if (pathname === "/") {
      await route.fulfill({
        contentType: "text/html",
        headers: { "Content-Security-Policy": POLICY },
        body: `<!doctype html><html lang="en" dir="${host.dir ?? "ltr"}"><head><title>Page</title>
          <link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">
          <script src="/hermes-panel.js" defer></script></head>
          <body><hermes-panel document-id="doc_1"></hermes-panel></body></html>`,
      });
    } else if (pathname === "/page.css") {
      await route.fulfill({ contentType: "text/css", body: host.css ?? "" });
    } else if (pathname === "/hermes-panel.js") {
      await route.fulfill({ contentType: "text/javascript", body: script });
    } else if (pathname.endsWith("/models")) {
      await route.fulfill(json({ defaultModel: null, models: [] }));
    } else if (pathname.endsWith("/sessions") && route.request().method() === "GET") {
      await route.fulfill(json({ sessions: [] }));
    } else if (pathname.endsWith("/sessions")) {
      await route.fulfill(json({ sessionId: SESSION, persistence: "hermes_on_first_run" }));
    } else if (pathname.endsWith("/runs")) {
      started.push(route.request().postDataJSON() as Record<string, unknown>);
      await route.fulfill(
        json({ sessionId: SESSION, runId: "run_1", messageId: null, events: [] }),
      );
    } else if (pathname.endsWith("/events/run_1")) {
      const asked = String(started.at(-1)?.["message"]);
      await route.fulfill({
        contentType: "text/event-stream",
        body: `id: 1\ndata: ${JSON.stringify({ event: "run.completed", run_id: "run_1", session_id: SESSION, output: asked, usage: null })}\n\n`,
      });
    } else {
      await route.fulfill({ status: 404, body: "" });
    }
  });
  await page.goto(`${ORIGIN}/`);
  await page.locator("hermes-panel textarea").waitFor();
}

async function ask(text: string): Promise<void> {
  await page.locator("hermes-panel textarea").fill(text);
  await page.keyboard.press("Enter");
  await page.locator("hermes-panel .turn:last-child[data-state=completed]").waitFor();
}

function styleOf(selector: string, properties: readonly string[]): Promise<string[]> {
  return page.locator(selector).evaluate((element, names) => {
    const style = getComputedStyle(element);
    return names.map((name) => style.getPropertyValue(name));
  }, properties);
}

beforeEach(() => {
  started = [];
});
afterEach(async () => {
  await browser.close();
});

/** What is inherited from a page and decides how a text looks, or whether one sees it at all. */
const INHERITED = [
  "writing-mode",
  "-webkit-text-fill-color",
  "-webkit-text-stroke-width",
  "text-orientation",
  "text-align-last",
  "font-feature-settings",
  "font-size-adjust",
  "font-variant-caps",
  "line-break",
  "word-break",
  "caret-color",
  "tab-size",
  "text-transform",
  "letter-spacing",
  "cursor",
];

test("looks the same whatever a page lets its texts inherit", async () => {
  const conversation = "- one\n- two\n\n7. seven\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |";
  await open({ css: "hermes-panel { height: 500px; width: 380px }" });
  await ask(conversation);
  const calm = await styleOf("hermes-panel .text p, hermes-panel .text li >> nth=0", INHERITED);
  const [right] = await styleOf("hermes-panel .text td >> nth=1", ["text-align"]);
  expect(right).toBe("end");
  expect(await page.locator("hermes-panel .text ol").getAttribute("start")).toBe("7");
  const box = await page.locator("hermes-panel .write").boundingBox();
  await browser.close();

  await open({
    css: `body { writing-mode: vertical-rl; -webkit-text-fill-color: transparent; -webkit-text-stroke: 2px red;
        text-orientation: upright; text-align-last: right; font: italic small-caps 900 40px/3 fantasy;
        font-feature-settings: "smcp"; font-size-adjust: 0.9; line-break: anywhere; word-break: break-all;
        caret-color: red; tab-size: 20; text-transform: uppercase; letter-spacing: 9px; cursor: none;
        list-style: square; quotes: none; color: lime }
      hermes-panel { height: 500px; width: 380px }`,
  });
  await ask(conversation);
  expect(await styleOf("hermes-panel .text p, hermes-panel .text li >> nth=0", INHERITED)).toEqual(
    calm,
  );
  const there = await page.locator("hermes-panel .write").boundingBox();
  expect([there?.width, there?.height]).toEqual([box?.width, box?.height]);
  browser.expectCalm();
});

test.each(["initial", "unset", "revert"])(
  "stays whole and within sight where a page says all: %s",
  async (all) => {
    await open({ css: `* { all: ${all} !important } head, style { display: none !important }` });
    await ask("a line\n\n".repeat(80));
    const field = await page.locator("hermes-panel .write").boundingBox();
    expect((field?.y ?? 0) + (field?.height ?? 0)).toBeLessThanOrEqual(700 + 16);
    expect((await styleOf("hermes-panel .panel", ["display", "font-size"])).join(" ")).toBe(
      "flex 15px",
    );
    browser.expectCalm();
  },
);

test("is gone where the page hides the part it stands in", async () => {
  await open({ css: "hermes-panel { height: 400px }" });
  await page.evaluate(() => {
    document.querySelector<HTMLElement>("hermes-panel")?.style.setProperty("visibility", "hidden");
  });
  expect(await page.locator("hermes-panel textarea").isVisible()).toBe(false);
});

test("gives the field back its height when the panel becomes wide", async () => {
  await open({ css: "hermes-panel { height: 500px; width: 200px }" });
  const field = page.locator("hermes-panel textarea");
  const height = async (): Promise<number> => (await field.boundingBox())?.height ?? 0;
  const one = await height();
  await field.fill("a question of more than one line here");
  expect(await height()).toBeGreaterThan(one + 10);
  await page.evaluate(() => {
    document.querySelector<HTMLElement>("hermes-panel")?.style.setProperty("width", "700px");
  });
  await expect.poll(height).toBeLessThan(one + 10);
  browser.expectCalm();
});

test("stands in the direction of its words, and every text in its own", async () => {
  await open({ dir: "rtl", css: "hermes-panel { height: 500px; width: 360px }" });
  await ask("مرحبا");
  const sides = await page
    .locator("hermes-panel :is(.panel, .asked .words, .text p)")
    .evaluateAll((all) => all.map((one) => getComputedStyle(one).direction));
  expect(sides).toEqual(["ltr", "rtl", "rtl"]);
  expect(await page.locator("hermes-panel .panel").getAttribute("lang")).toBe("en");
  browser.expectCalm();
});

test("says everything in another language at once, beside a piece of code too", async () => {
  await open();
  await ask("```\nx = 1\n```");
  const bar = page.locator("hermes-panel .code-bar");
  expect(await bar.textContent()).toBe("CodeCopy");
  await page.evaluate(() => {
    document.querySelector("hermes-panel")?.setAttribute("lang", "ru-RU");
  });
  await expect.poll(() => bar.textContent()).toBe("КодКопировать");
  expect(await page.locator("hermes-panel .panel").getAttribute("lang")).toBe("ru");
  browser.expectCalm();
});

test("asks without what a page tells wrongly, and tells the page's owner", async () => {
  await open();
  await page.evaluate(() => {
    const panel = document.querySelector("hermes-panel") as HTMLElement & Record<string, unknown>;
    const circle: Record<string, unknown> = {};
    circle["itself"] = circle;
    panel["pageContext"] = () => circle;
    panel["selectedBlockId"] = 7;
  });
  await ask("hello");
  expect(started[0]).toMatchObject({
    message: "hello",
    pageContext: { title: "Page", outline: [] },
    selectedBlockId: "7",
  });
  browser.expectCalm(/pageContext/);
  expect(browser.complaints.length).toBe(1);
});
