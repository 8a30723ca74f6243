/** The chat with large letters, and on a screen that changes. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { Browser, PHONE } from "./browser.ts";
import { ChatPage } from "./chat-page.ts";
import { startScripted, type Running } from "./processes.ts";

let running: Running;
let browser: Browser;
let chat: ChatPage;

beforeAll(async () => {
  running = await startScripted();
});
afterAll(async () => {
  await running.stop();
});
beforeEach(async () => {
  browser = await Browser.start(PHONE);
  chat = new ChatPage(await browser.page());
});
afterEach(async () => {
  await browser.close();
});

/** As for a person who has told the browser to write twice as large. */
async function enlarge(): Promise<void> {
  await chat.page.evaluate(() => {
    document.documentElement.style.fontSize = "200%";
  });
}

/** What is wider than its place and cannot be scrolled to. */
function cutOff(): Promise<string[]> {
  return chat.page.evaluate(() =>
    [...document.querySelectorAll("hm-app *")]
      .filter((one) => {
        const { overflowX, textOverflow } = getComputedStyle(one);
        const hidden = one.closest(".hidden, svg, iframe") !== null || textOverflow === "ellipsis";
        const box = one.getBoundingClientRect();
        return !hidden && overflowX !== "auto" && box.width > 1 && box.right > innerWidth + 1;
      })
      .map((one) => one.outerHTML.slice(0, 80)),
  );
}

test("fits a phone with letters twice as large", async () => {
  await chat.page.goto(`http://${running.door}/chat/`);
  await chat.page.locator("#agent-token").waitFor();
  await enlarge();
  expect(await cutOff()).toEqual([]);
  await chat.connect(running.door, running.token);
  await enlarge();
  await chat.say("approve rm -rf /tmp/no-such-folder");
  await chat.card();
  expect(await cutOff()).toEqual([]);
});

test("gives the field back its height when the phone is turned", async () => {
  await chat.connect(running.door, running.token);
  const height = async (): Promise<number> => (await chat.field.boundingBox())?.height ?? 0;
  const one = await height();
  await chat.field.fill("a message that takes more than a line on a phone");
  expect(await height()).toBeGreaterThan(one + 10);
  await chat.page.setViewportSize({ width: PHONE.height, height: PHONE.width });
  await expect.poll(height).toBeLessThan(one + 10);
});
