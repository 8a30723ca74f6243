/** One headless Chromium with a profile of its own, and what every page in it is watched for. */
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type BrowserContext, type Page } from "playwright-core";
import { expect } from "vitest";
import { PATIENCE } from "./patience.ts";

const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

export interface BrowserOptions {
  readonly width?: number;
  readonly height?: number;
  readonly dark?: boolean;
  readonly locale?: string;
  readonly reducedMotion?: boolean;
}

export const PHONE = { width: 360, height: 740 };
export const DESKTOP = { width: 1280, height: 800 };

export class Browser {
  readonly context: BrowserContext;
  /** Console errors, uncaught errors and Content-Security-Policy reports of all pages. */
  readonly complaints: string[] = [];
  /** Every request of all pages, as `METHOD address`. */
  readonly requests: string[] = [];
  readonly #profile: string;

  private constructor(context: BrowserContext, profile: string) {
    this.context = context;
    this.#profile = profile;
    for (const page of context.pages()) this.#watch(page);
    context.on("page", (page) => {
      this.#watch(page);
    });
    context.on("request", (request) => {
      this.requests.push(`${request.method()} ${request.url()}`);
    });
  }

  static async start(options: BrowserOptions = {}): Promise<Browser> {
    if (!existsSync(CHROMIUM)) {
      throw new Error(
        `${CHROMIUM} is missing. On Debian: apt-get install chromium; else set CHROMIUM.`,
      );
    }
    const profile = await mkdtemp(join(tmpdir(), "hermes-chromium-"));
    try {
      return new Browser(await Browser.#launch(profile, options), profile);
    } catch (error) {
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
      throw error;
    }
  }

  static async #launch(profile: string, options: BrowserOptions): Promise<BrowserContext> {
    const context = await chromium.launchPersistentContext(profile, {
      timeout: PATIENCE,
      executablePath: CHROMIUM,
      headless: true,
      viewport: {
        width: options.width ?? DESKTOP.width,
        height: options.height ?? DESKTOP.height,
      },
      colorScheme: options.dark === true ? "dark" : "light",
      reducedMotion: options.reducedMotion === true ? "reduce" : "no-preference",
      locale: options.locale ?? "en-US",
      permissions: ["clipboard-read", "clipboard-write", "microphone"],
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        // A beep instead of a microphone.
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
      ],
    });
    context.setDefaultTimeout(PATIENCE);
    return context;
  }

  async page(): Promise<Page> {
    const [first] = this.context.pages();
    return first !== undefined && first.url() === "about:blank" ? first : this.context.newPage();
  }

  /** Nothing was complained about; what matches `allowed` is part of the test. */
  expectCalm(allowed?: RegExp): void {
    const left = this.complaints.filter((text) => allowed === undefined || !allowed.test(text));
    expect(left).toEqual([]);
  }

  async close(): Promise<void> {
    await this.context.close();
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }

  #watch(page: Page): void {
    page.on("console", (message) => {
      if (message.type() === "error") this.complaints.push(message.text());
    });
    page.on("pageerror", (error) => {
      this.complaints.push(String(error));
    });
  }
}

/** No serious finding of axe on the page as it is now, shadow trees included. */
export async function expectAccessible(page: Page): Promise<void> {
  // A colour on its way to another one is nobody's colour. What moves for ever is left alone.
  await page.evaluate(async () => {
    const trees = [...document.querySelectorAll("*")].flatMap(({ shadowRoot }) => shadowRoot ?? []);
    const moving = new Set([document, ...trees].flatMap((tree) => tree.getAnimations()));
    const ending = [...moving].filter(({ effect }) =>
      Number.isFinite(effect?.getComputedTiming().endTime ?? 0),
    );
    await Promise.allSettled(ending.map(({ finished }) => finished));
  });
  // Not as a script element, which the page's policy would refuse.
  await page.evaluate(await readFile(AXE, "utf8"));
  const findings = await page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: {
        run(): Promise<{
          violations: { id: string; impact: string; nodes: { html: string }[] }[];
        }>;
      };
    };
    const { violations } = await axe.run();
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`);
  });
  expect(findings).toEqual([]);
}

/**
 * Counts, from now on, the lengths that the last text found goes through; returns how to ask for the
 * number. The page itself counts: who looks from outside may sleep through all of them.
 *
 * @param host element in whose shadow tree the text is, or nothing for the page's own tree
 */
export async function watchGrowth(
  page: Page,
  text: string,
  host?: string,
): Promise<() => Promise<number>> {
  await page.evaluate(
    ([selector, outer]) => {
      const tree = outer === undefined ? document : document.querySelector(outer)?.shadowRoot;
      if (tree == null) throw new Error(`There is no ${outer ?? ""} with a tree of its own.`);
      const lengths = new Set<number>();
      new MutationObserver(() => {
        const length = [...tree.querySelectorAll(selector)].at(-1)?.textContent?.trim().length ?? 0;
        if (length > 0) lengths.add(length);
      }).observe(tree, { subtree: true, childList: true, characterData: true });
      Object.assign(window, { lengths });
    },
    [text, host] as const,
  );
  return () =>
    page.evaluate(() => (window as unknown as { lengths: ReadonlySet<number> }).lengths.size);
}

/** Looks again and again until `look` gives something, for at most `patience` milliseconds. */
export async function until<Value>(
  look: () => Promise<Value | undefined | false> | Value | undefined | false,
  what: string,
  patience = PATIENCE,
): Promise<Value> {
  const deadline = Date.now() + patience;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > deadline) throw new Error(`Waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
}
