/** The page panel in a real browser, on the browser door of a real Hermes Agent. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Browser, PHONE, expectAccessible, watchGrowth, type BrowserOptions } from "./browser.ts";
import { words } from "./chat-page.ts";
import { Line } from "./line.ts";
import { HERMES_VERSIONS, startHermes, type Running } from "./processes.ts";

const API = "/api/hermes/client/";
const CUT = /ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE|ERR_NETWORK|Failed to load resource/;

let running: Running;
let line: Line;
let cookies: Parameters<Browser["context"]["addCookies"]>[0];

class PanelPage {
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  async open(path = "/sample/"): Promise<void> {
    await this.page.goto(`http://${line.address}${path}`);
    await this.page.locator("hermes-panel textarea").waitFor();
    await this.page.locator("hermes-panel .log .quiet").waitFor({ state: "detached" });
  }

  /** Begins a conversation of its own, whatever the document's others are. */
  async fresh(): Promise<void> {
    const button = this.page
      .locator("hermes-panel")
      .getByRole("button", { name: "New conversation" });
    const last = button.last();
    if (await last.isEnabled()) await last.click();
    await this.page.locator("hermes-panel .empty").waitFor();
  }

  async ask(text: string): Promise<void> {
    await this.page.locator("hermes-panel textarea").fill(text);
    await this.page.keyboard.press("Enter");
    await this.page.locator("hermes-panel .turn").last().getByText(text).first().waitFor();
  }

  async state(state: string): Promise<void> {
    await this.page.locator(`hermes-panel .turn:last-child[data-state=${state}]`).waitFor();
  }

  /** Waits until the last turn says this. */
  async says(text: string): Promise<void> {
    await expect.poll(() => this.answer()).toBe(text);
  }

  answer(): Promise<string> {
    return this.page
      .locator("hermes-panel .turn:last-child .text")
      .evaluateAll((all) => all.map((one) => (one as HTMLElement).innerText.trim()).join("\n"));
  }

  /** Class of the panel's element that has the keyboard. */
  focused(): Promise<string | undefined> {
    return this.page.evaluate(
      () => document.querySelector("hermes-panel")?.shadowRoot?.activeElement?.className,
    );
  }

  count(): Promise<number> {
    return this.page.locator("hermes-panel .turn").count();
  }
}

describe.each(HERMES_VERSIONS)("the panel on Hermes %s", (version) => {
  beforeAll(async () => {
    running = await startHermes(version);
    line = await Line.to(new URL(running.web ?? "").host);
    // The login link works once: every browser of these tests gets its cookie, which is named by
    // the port that the browser asks.
    const browser = await Browser.start();
    try {
      const page = await browser.page();
      const login = new URL(running.login ?? "");
      login.host = line.address;
      await page.goto(login.href);
      await page.waitForURL(/\/sample\/$/);
      cookies = await browser.context.cookies();
    } finally {
      await browser.close();
    }
  });
  afterAll(async () => {
    try {
      await line.close();
    } finally {
      await running.stop();
    }
  });

  let browser: Browser;
  let panel: PanelPage;

  const start = async (options?: BrowserOptions): Promise<void> => {
    browser = await Browser.start(options);
    await browser.context.addCookies(cookies);
    panel = new PanelPage(await browser.page());
  };
  beforeEach(async () => {
    line.mend(); // the test before may have failed with the line cut
    await start();
    await panel.open();
    await panel.fresh();
  });
  afterEach(async () => {
    const asked = browser.requests.map((request) => new URL(request.split(" ")[1] ?? ""));
    const foreign = asked.filter(
      ({ host, protocol }) => protocol !== "data:" && host !== line.address,
    );
    await browser.close();
    expect(foreign.map(String)).toEqual([]);
    expect(asked.filter(({ pathname }) => pathname.startsWith("/api/ai-agent"))).toEqual([]);
    const other = asked.filter(
      ({ pathname }) =>
        !pathname.startsWith(API) && !/^\/(?:sample|panel|hostile)\//.test(pathname),
    );
    expect(other.map(String).filter((address) => !address.startsWith("data:"))).toEqual([]);
  });

  test("shows an answer growing and keeps the session", async () => {
    const lengths = await watchGrowth(panel.page, ".turn:last-child .text", "hermes-panel");
    await panel.ask("stream 60 100");
    await panel.says(words(60));
    expect(await lengths()).toBeGreaterThan(3);
    await panel.state("completed");
    await panel.ask("hello");
    await panel.state("completed");
    await panel.says("echo: hello");
    await panel.page.reload();
    await expect.poll(() => panel.count()).toBe(2);
    await panel.says("echo: hello");
    browser.expectCalm();
  });

  test("takes the selected text and the page along, beside the words", async () => {
    const bodies: string[] = [];
    panel.page.on("request", (request) => {
      if (request.url().endsWith("/runs")) bodies.push(request.postData() ?? "");
    });
    await panel.page.locator("p[data-block=water]").selectText();
    await panel.page.locator("hermes-panel .selection").waitFor();
    await panel.ask("how long does it last?");
    await panel.state("completed");
    await panel.says("echo: how long does it last?");
    const body = JSON.parse(bodies[0] ?? "{}") as Record<string, unknown>;
    expect(body["message"]).toBe("how long does it last?");
    expect(body["selectedText"]).toContain("Two barrels");
    expect(body["selectedBlockId"]).toBe("water");
    expect((body["pageContext"] as { title: string }).title).toContain("spring garden");
    await expect.poll(() => panel.page.locator("hermes-panel .selection").count()).toBe(0);
    browser.expectCalm();
  });

  test("asks also when the page's own function fails", async () => {
    const bodies: string[] = [];
    panel.page.on("request", (request) => {
      if (request.url().endsWith("/runs")) bodies.push(request.postData() ?? "");
    });
    await panel.page.evaluate(() => {
      const panel = document.querySelector("hermes-panel") as HTMLElement & Record<string, unknown>;
      panel["pageContext"] = () => {
        throw new Error("the page's own mistake");
      };
      panel["selectedText"] = () => Promise.resolve(null);
    });
    await panel.ask("is anybody there?");
    await panel.state("completed");
    const body = JSON.parse(bodies[0] ?? "{}") as { pageContext: { title: string } };
    expect(body.pageContext.title).toContain("spring garden"); // what it shows by itself
    browser.expectCalm(/the page's own mistake/);
  });

  test("shows what tools do, and asks before a dangerous one", async () => {
    await panel.ask("run echo tool-output");
    await panel.page.locator("hermes-panel .tool.done").waitFor();
    await panel.state("completed");
    await expect.poll(() => panel.answer()).toContain("tool-output");
    await panel.ask("approve rm -rf /tmp/no-such-folder");
    const card = panel.page.locator("hermes-panel .approval.open");
    await card.waitFor();
    expect(await card.locator("pre").innerText()).toBe("rm -rf /tmp/no-such-folder");
    const spoken = panel.page.locator("hermes-panel .panel > .hidden[role=status]");
    await expect
      .poll(() => spoken.textContent())
      .toBe("May this command run? rm -rf /tmp/no-such-folder");
    await expectAccessible(panel.page);
    await card.getByRole("button", { name: "Deny" }).focus();
    await panel.page.keyboard.press("Enter");
    await panel.page.locator("hermes-panel .approval.answered").getByText("Denied").waitFor();
    await panel.state("completed");
    // The button is gone, the keyboard is still in the panel.
    expect(await panel.focused()).toBe("log");
    await panel.page.locator("hermes-panel .turn:last-child .tool.refused").waitFor();
    expect(await panel.page.locator("hermes-panel .tool.failed").count()).toBe(0);
    await expect.poll(() => panel.answer()).toContain("approval: deny");
    browser.expectCalm();
  });

  test("stops a run and says so only when it has stopped", async () => {
    await panel.ask("stream 2000 50");
    await expect.poll(() => panel.answer()).toContain("word5");
    await panel.page.locator("hermes-panel .stop").click();
    await panel.state("cancelled");
    await panel.page.getByText("Stopped.").waitFor();
    await panel.ask("after the stop");
    await panel.state("completed");
    await expect.poll(() => panel.answer()).toContain("after the stop");
    browser.expectCalm();
  });

  test("tells in plain words what failed, with the trace id", async () => {
    await panel.ask("fail");
    await panel.page.locator("hermes-panel .problem").waitFor();
    expect(await panel.page.locator("hermes-panel .trace code").innerText()).toMatch(/^trace_/);
    await expectAccessible(panel.page);
    browser.expectCalm();
  });

  test("goes on after a reload in the middle of an answer", async () => {
    await panel.ask("stream 60 60");
    await expect.poll(() => panel.answer()).toContain("word8");
    await panel.page.reload();
    await panel.says(words(60));
    await panel.state("completed");
    expect(await panel.count()).toBe(1);
    browser.expectCalm();
  });

  test("loses nothing when the line is cut and mended", async () => {
    await panel.ask("stream 200 60");
    await expect.poll(() => panel.answer()).toContain("word8");
    line.cut(); // in the middle of it, however late that was seen
    await panel.page.getByText("The connection is lost").waitFor();
    line.mend();
    await panel.says(words(200));
    await panel.state("completed");
    browser.expectCalm(CUT);
  });

  test("shows the same run in two tabs", async () => {
    await panel.ask("first of two tabs");
    await panel.state("completed");
    const other = new PanelPage(await browser.context.newPage());
    await other.open();
    await other.says("echo: first of two tabs");
    await panel.ask("stream 40 60");
    await other.says(words(40));
    await panel.says(words(40));
    // The last words come before the end of the run, and a run that goes on takes no question.
    await other.state("completed");
    await other.ask("and back");
    await other.state("completed");
    await other.says("echo: and back");
    browser.expectCalm();
  });

  test("opens an earlier conversation by keyboard alone", async () => {
    const name = `keyboard ${Date.now()}`;
    await panel.ask(name);
    await panel.state("completed");
    await panel.fresh();
    const chooser = panel.page.locator("hermes-panel .chooser");
    await chooser.focus();
    await panel.page.keyboard.press("Enter");
    await panel.page.locator("hermes-panel .list").getByText(name).waitFor();
    await expectAccessible(panel.page);
    await panel.page.keyboard.press("Escape");
    await expect.poll(() => panel.focused()).toBe("chooser");
    await panel.page.keyboard.press("Enter");
    // A second press before the list has the keyboard would close it again.
    await expect.poll(() => panel.focused()).not.toBe("chooser");
    await panel.page.keyboard.press("Enter");
    await panel.says(`echo: ${name}`);
    browser.expectCalm();
  });

  if (version !== HERMES_VERSIONS[0]) return; // How it looks has nothing to do with Hermes.

  test("keeps its looks and works in a hostile page", async () => {
    await panel.page.route("**/hostile/", (route) =>
      route.fulfill({
        contentType: "text/html",
        headers: {
          "Content-Security-Policy":
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
            "require-trusted-types-for 'script'; base-uri 'none'; form-action 'none'",
        },
        body: `<!doctype html><html lang="en_no language!"><head><title>Hostile</title>
          <link rel="icon" href="data:,"><link rel="stylesheet" href="/hostile/page.css">
          <script src="/panel/hermes-panel.js" defer></script></head>
          <body><h1>Hostile</h1><div><hermes-panel document-id="hostile"></hermes-panel></div></body></html>`,
      }),
    );
    await panel.page.route("**/hostile/page.css", (route) =>
      route.fulfill({
        contentType: "text/css",
        body: `html { font-size: 40px } h1 { margin: 0 } div { height: 600px; width: 380px }
          * { color: red !important; font: 700 30px cursive !important; letter-spacing: 8px !important;
              text-transform: uppercase !important; line-height: 3 !important; border-radius: 0 !important;
              text-align: right !important; background: yellow !important; animation: none }
          button, textarea, p { display: none !important; width: 5px !important }`,
      }),
    );
    await panel.open("/hostile/");
    await panel.fresh();
    await panel.ask("hello");
    await panel.state("completed");
    await panel.says("echo: hello");
    await panel.ask("run sleep 0.2");
    await panel.page.locator("hermes-panel .tool.done .detail").waitFor(); // how long it took
    await panel.page.locator("hermes-panel .chooser").click();
    await panel.page.locator("hermes-panel .list .detail").first().waitFor(); // when it was
    await panel.page.keyboard.press("Escape");
    const look = await panel.page.locator("hermes-panel .panel").evaluate((element) => {
      const { color, fontSize, letterSpacing, textTransform, textAlign, backgroundColor } =
        getComputedStyle(element);
      return { color, fontSize, letterSpacing, textTransform, textAlign, backgroundColor };
    });
    expect(look).toEqual({
      color: "rgb(26, 28, 36)",
      fontSize: "15px",
      letterSpacing: "normal",
      textTransform: "none",
      textAlign: "start",
      backgroundColor: "rgb(255, 255, 255)",
    });
    browser.expectCalm();
  });

  test("keeps what is typed from the page's shortcuts", async () => {
    await panel.page.evaluate(() => {
      const heard: string[] = [];
      for (const kind of ["keydown", "keypress", "keyup"]) {
        document.addEventListener(kind, (event) => heard.push((event as KeyboardEvent).key));
      }
      Object.assign(window, { heard });
    });
    await panel.page.locator("hermes-panel textarea").pressSequentially("s/j");
    await panel.page.keyboard.press("Control+k");
    const heard = await panel.page.evaluate(() => (window as unknown as { heard: string[] }).heard);
    expect(heard).not.toContain("s");
    expect(heard).not.toContain("/");
    expect(heard).toContain("k");
    expect(await panel.page.locator("hermes-panel textarea").inputValue()).toBe("s/j");
  });

  test("takes the page's colours by custom properties", async () => {
    await panel.page.evaluate(() => {
      const panel = document.querySelector<HTMLElement>("hermes-panel");
      panel?.style.setProperty("--hermes-background", "rgb(1, 2, 3)");
      panel?.style.setProperty("--hermes-accent", "rgb(200, 100, 50)");
    });
    const [ground, accent] = await panel.page.evaluate(() => {
      const shadow = document.querySelector("hermes-panel")?.shadowRoot;
      const [box, button] = [
        shadow?.querySelector(".panel"),
        shadow?.querySelector(".write .primary"),
      ];
      return [box, button].map((one) => (one == null ? "" : getComputedStyle(one).backgroundColor));
    });
    expect(ground).toBe("rgb(1, 2, 3)");
    expect(accent).toBe("rgb(200, 100, 50)");
  });

  test.each([
    { name: "desktop, light", dark: false },
    { name: "desktop, dark", dark: true },
    { name: "phone, light", dark: false, ...PHONE },
    { name: "phone, dark", dark: true, ...PHONE },
    { name: "the smallest phone", dark: false, width: 320, height: 568 },
  ])("has no serious barrier ($name)", async (look) => {
    await browser.close();
    await start(look);
    await panel.open();
    await expectAccessible(panel.page);
    // Nothing is wider than the panel: what sticks out would be cut off.
    const cut = await panel.page.evaluate(() => {
      const inner = document.querySelector("hermes-panel")?.shadowRoot;
      const box = inner?.querySelector(".panel")?.getBoundingClientRect();
      return [...(inner?.querySelectorAll("header *, .write *") ?? [])]
        .filter((one) => one.getBoundingClientRect().right > (box?.right ?? 0))
        .map((one) => one.outerHTML.slice(0, 80));
    });
    expect(cut).toEqual([]);
    await panel.fresh();
    await panel.ask("# One\n\n- a\n\n```js\ncode\n```");
    await panel.state("completed");
    await expectAccessible(panel.page);
    browser.expectCalm();
  });

  test("says that one must sign in", async () => {
    const browser = await Browser.start();
    try {
      const panel = new PanelPage(await browser.page());
      await panel.page.goto(`http://${line.address}/sample/`);
      await panel.page.getByText("You are not signed in").waitFor();
      await expectAccessible(panel.page);
      browser.expectCalm(/401/);
    } finally {
      await browser.close();
    }
  });
});
