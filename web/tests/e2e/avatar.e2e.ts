/** The avatar page as the device door serves it. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Browser, expectAccessible, until } from "./browser.ts";
import { ROOT, startScripted, type Running } from "./processes.ts";

let running: Running;
let browser: Browser;

beforeAll(async () => {
  running = await startScripted();
  browser = await Browser.start({ width: 300, height: 300 });
});
afterAll(async () => {
  await browser.close();
  await running.stop();
});

const state = (page: Page): Promise<string | null> => page.getAttribute("html", "data-state");

test("weighs less than 50 KB in all", async () => {
  const folder = join(ROOT, "web/dist/avatar");
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = await Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async (entry) => (await stat(join(entry.parentPath, entry.name))).size),
  );
  expect(sizes.length).toBeGreaterThan(2);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(50 * 1024);
});

test("takes its state by a call and by a message, and asks no other server", async () => {
  const page = await browser.page();
  await page.goto(`http://${running.door}/avatar/`);
  expect(await state(page)).toBe("idle");
  const call = (value: unknown): Promise<void> =>
    page.evaluate((given) => {
      window.hermesAvatar.setState(given);
    }, value);
  await call("thinking");
  expect(await state(page)).toBe("thinking");
  await call("speaking");
  expect(await state(page)).toBe("speaking");
  expect(await page.locator("#face").getAttribute("aria-label")).toBe("Hermes is answering");
  await call("angry");
  expect(await state(page)).toBe("idle");
  for (const [message, expected] of [
    ["thinking", "thinking"],
    [{ state: "speaking" }, "speaking"],
    [{ t: "avatar", state: "thinking" }, "thinking"],
    ['{"state":"speaking"}', "speaking"],
    [{ state: "surprised" }, "idle"],
  ] as const) {
    await page.evaluate((data) => {
      window.postMessage(data, "*");
    }, message);
    await until(async () => (await state(page)) === expected, `${JSON.stringify(message)}`);
  }
  await expectAccessible(page);
  const foreign = browser.requests
    .map((request) => request.split(" ")[1] ?? "")
    .filter((address) => !address.startsWith(`http://${running.door}/`));
  expect(foreign.filter((address) => !address.startsWith("data:"))).toEqual([]);
  browser.expectCalm();
});

test("works in a sandboxed frame", async () => {
  const page = await browser.context.newPage();
  await page.goto(`http://${running.door}/health`);
  await page.setContent(
    `<iframe sandbox="allow-scripts" src="http://${running.door}/avatar/"></iframe>`,
  );
  const frame = await until(
    () => page.frames().find((one) => one.url().endsWith("/avatar/")),
    "the frame",
  );
  await frame.waitForFunction(() => "hermesAvatar" in window);
  await page.evaluate(() => {
    document.querySelector("iframe")?.contentWindow?.postMessage({ state: "thinking" }, "*");
  });
  await until(
    async () => (await frame.locator("html").getAttribute("data-state")) === "thinking",
    "the state",
  );
  await page.close();
});

test("stands still where motion is not wanted, and its states still differ", async () => {
  const still = await Browser.start({ reducedMotion: true, width: 300, height: 300 });
  try {
    const page = await still.page();
    await page.goto(`http://${running.door}/avatar/`);
    const pictures: string[] = [];
    for (const name of ["idle", "thinking", "speaking"]) {
      await page.evaluate((value) => {
        window.hermesAvatar.setState(value);
      }, name);
      const running_ = await page.evaluate(() => document.getAnimations().length);
      expect(running_).toBe(0);
      pictures.push((await page.screenshot()).toString("base64"));
    }
    expect(new Set(pictures).size).toBe(3);
  } finally {
    await still.close();
  }
});
