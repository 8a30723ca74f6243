/** The chat in a real browser, against the scripted agent and against a real Hermes Agent. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Browser, PHONE, expectAccessible, until, watchGrowth } from "./browser.ts";
import { ChatPage, occurrences, words } from "./chat-page.ts";
import { Line } from "./line.ts";
import { ROOT, startHermes, startScripted, type Running } from "./processes.ts";

/** What Chromium itself writes when a line is cut, which no page can prevent. */
const CUT = /WebSocket connection|ERR_CONNECTION|ERR_EMPTY_RESPONSE|Failed to load resource/;
const AGENTS = { "the scripted agent": startScripted, "a real Hermes Agent": startHermes };

describe.each(Object.entries(AGENTS))("the chat with %s", (_name, startAgent) => {
  let running: Running;
  let line: Line;
  let browser: Browser;
  let chat: ChatPage;

  beforeAll(async () => {
    running = await startAgent();
  });
  afterAll(async () => {
    await running.stop();
  });
  beforeEach(async () => {
    line = await Line.to(running.door);
    browser = await Browser.start();
    chat = new ChatPage(await browser.page());
    await chat.connect(line.address, running.token);
  });
  afterEach(async () => {
    try {
      await browser.close();
    } finally {
      await line.close();
    }
  });

  test("holds a conversation with Markdown, code and a copy button", async () => {
    await chat.say("hello");
    await chat.answer("echo: hello");
    await chat.say("some *emphasis* and code:\n\n- مرحبا\n\n```js\nlet answer = 42;\n```");
    await chat.page.locator("hm-entry.said .code pre", { hasText: "let answer = 42;" }).waitFor();
    await expect.poll(() => chat.page.locator(".growing").count()).toBe(0);
    // Each piece stands on the side where its words begin, code on the left.
    const sides = await chat.page
      .locator("hm-entry.said:last-of-type :is(p, ul, pre)")
      .evaluateAll((all) => all.slice(-3).map((one) => getComputedStyle(one).direction));
    expect(sides).toEqual(["ltr", "rtl", "ltr"]);
    expect(await chat.page.locator("hm-entry.said em").innerText()).toBe("emphasis");
    // The button says so for a moment only: somebody has to look already when it is pressed.
    await Promise.all([
      chat.page.getByText("Copied").waitFor(),
      chat.page.locator("hm-entry.said [data-copy]").click(),
    ]);
    const copied = await chat.page.evaluate(() => navigator.clipboard.readText());
    expect(copied.trim()).toBe("let answer = 42;");
    expect(await chat.sent()).toHaveLength(2);
    await expect.poll(() => chat.page.locator("hm-line").innerText()).toBe("Connected");
    browser.expectCalm();
  });

  test("shows nothing of an answer as HTML, and fetches nothing it names", async () => {
    const before = browser.requests.length;
    await chat.say(
      'x <img src="http://127.0.0.1:9/a.png" onerror="alert(1)"> ![pic](http://127.0.0.1:9/b.png) ' +
        "[js](javascript:alert(1)) <script>alert(1)</script> end",
    );
    await chat.answer(/end$/);
    const entry = chat.page.locator("hm-entry.said").last();
    expect(await entry.locator("img, script").count()).toBe(0);
    expect(await entry.innerText()).toContain("<script>");
    expect(await entry.locator('a[href^="javascript"]').count()).toBe(0);
    expect(browser.requests.slice(before).filter((request) => request.includes(":9/"))).toEqual([]);
    browser.expectCalm();
  });

  test("shows an answer growing, in one entry", async () => {
    const lengths = await watchGrowth(chat.page, "hm-entry.said .markdown");
    await chat.say("stream 60 100");
    await chat.answer(words(60));
    expect(await lengths()).toBeGreaterThan(3);
    expect(occurrences(await chat.answers(), "word1 ")).toBe(1);
    await expect.poll(() => chat.page.locator(".growing").count()).toBe(0);
    browser.expectCalm();
  });

  test("answers an approval with the exact command on the card", async () => {
    await chat.say("approve rm -rf /tmp/no-such-folder");
    const card = await chat.card();
    expect(await card.locator("pre").innerText()).toBe("rm -rf /tmp/no-such-folder");
    expect(await card.locator("[role=timer]").innerText()).toMatch(/\d+:\d\d left/);
    await expectAccessible(chat.page);
    await card.getByRole("button", { name: "Allow once" }).click();
    await chat.answer(/^approval: once/);
    await expect.poll(() => chat.outcomes()).toEqual(["Allowed once"]);
    await chat.say("approve rm -rf /tmp/no-such-folder");
    await (await chat.card()).getByRole("button", { name: "Deny" }).click();
    await chat.answer(/^approval: deny/);
    await expect.poll(() => chat.outcomes()).toEqual(["Allowed once", "Denied"]);
    browser.expectCalm();
  });

  test("answers a question by choice and in own words", async () => {
    await chat.say("clarify Tea or coffee?|tea|coffee");
    const card = await chat.card();
    await card.getByRole("button", { name: "coffee" }).focus();
    await chat.page.keyboard.press("Enter");
    await chat.answer("clarify: coffee");
    await expect.poll(() => chat.outcomes()).toEqual(["Answered: coffee"]);
    // The button is gone, the keyboard is still at the card.
    expect(await chat.page.evaluate(() => document.activeElement?.className)).toContain("card");
    await chat.say("clarify Tea or coffee?|tea|coffee");
    await (await chat.card()).getByRole("button", { name: "Something else" }).click();
    await chat.page.locator("hm-card textarea").fill("cocoa");
    await chat.page.keyboard.press("Enter");
    await chat.answer("clarify: cocoa");
    await expect.poll(() => chat.outcomes()).toEqual(["Answered: coffee", "Answered: cocoa"]);
    browser.expectCalm();
  });

  test("confirms a slash command", async () => {
    await chat.say("confirm");
    const card = await chat.card();
    await card.getByRole("button", { name: "Yes, once" }).click();
    await expect.poll(() => chat.outcomes()).toEqual(["Confirmed"]);
    browser.expectCalm();
  });

  test("sends a file and a recording, and takes a file", async () => {
    const bytes = Buffer.from("The file of this test.\n".repeat(20_000));
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    await chat.page
      .locator("hm-composer input[type=file]")
      .setInputFiles({ name: "notes.bin", mimeType: "application/octet-stream", buffer: bytes });
    await chat.say("what is it?");
    const described = await chat.answer(new RegExp(sha256));
    expect(described).toContain("notes.bin");
    expect(described).toContain("what is it?");

    await chat.page.getByRole("button", { name: "Record voice" }).click();
    await until(
      async () => (await chat.page.locator(".lasted").innerText()) !== "0:00",
      "a second of recording",
    );
    await chat.page.getByRole("button", { name: "Send the recording" }).click();
    await chat.answer(/voice|audio/i);
    // One that was only just begun is no empty one.
    await chat.page.getByRole("button", { name: "Record voice" }).evaluate((button) => {
      (button as HTMLElement).click();
      (button as HTMLElement).click(); // while the browser is still asked for the microphone
    });
    await chat.page.getByRole("button", { name: "Send the recording" }).click();
    await until(
      async () => (await chat.page.locator("hm-entry.mine audio").count()) === 2,
      "the second recording",
    );
    expect(await chat.page.locator("hm-composer .problem").count()).toBe(0);
    await chat.page.locator("hm-entry.said").nth(2).waitFor();

    await chat.say("document");
    const link = chat.page.locator("hm-entry.shown a[download]").last();
    await link.waitFor();
    const [download] = await Promise.all([chat.page.waitForEvent("download"), link.click()]);
    const saved = await readFile(await download.path());
    expect(saved.subarray(0, 5).toString()).toBe("%PDF-");
    browser.expectCalm();
  });

  test("shows every kind of file in its place", async () => {
    // One after the other: a text in the middle of a turn interrupts Hermes.
    for (const [kind, element] of [
      ["image", "img >> nth=0"],
      ["animation", "img >> nth=1"],
      ["voice", "audio"],
      ["video", "video"],
    ]) {
      await chat.say(kind ?? "");
      await chat.page.locator(`hm-entry.shown ${element}`).waitFor();
    }
    const pictures = chat.page.locator("hm-entry.shown img");
    const loaded = (): Promise<boolean[]> =>
      pictures.evaluateAll((all) => all.map((one) => (one as HTMLImageElement).naturalWidth > 0));
    await expect.poll(loaded).toEqual([true, true]);
    await expectAccessible(chat.page);
    browser.expectCalm();
  });

  test("loses and doubles nothing when the line is cut and mended", async () => {
    await chat.say("stream 60 60");
    await chat.answer(/word5/);
    line.cut();
    await chat.phase("waiting");
    await chat.say("written without a line");
    await chat.page.locator("hm-entry.mine").last().getByText("Waiting").waitFor();
    line.mend();
    // The page may have tried by itself before the person does: then the button is gone.
    await Promise.race([chat.page.getByRole("button", { name: "Try now" }).click(), chat.ready()]);
    await chat.ready();
    await chat.answer(/written without a line/);
    const answers = await chat.answers();
    expect(occurrences(answers, "echo: written without a line")).toBe(1);
    expect(occurrences(answers, "word1 word2")).toBe(1);
    expect(await chat.sent()).toEqual(["stream 60 60", "written without a line"]);
    browser.expectCalm(CUT);
  });

  test("finds the answer again after a reload in the middle of it", async () => {
    await chat.say("stream 60 60");
    await chat.answer(/word8/);
    await chat.page.reload();
    await chat.ready();
    await chat.answer(words(60));
    expect(await chat.answers()).toEqual([words(60)]);
    expect(await chat.sent()).toEqual(["stream 60 60"]);
    browser.expectCalm();
  });

  test("is the same conversation in two windows", async () => {
    await chat.say("from the first");
    await chat.answer("echo: from the first");
    const other = new ChatPage(await browser.context.newPage());
    await other.page.goto(`http://${line.address}/chat/`);
    // One of them leads: the one that was there, or the new one if that one was too busy to say so.
    const phases = (): Promise<(string | null)[]> =>
      Promise.all(
        [chat, other].map(({ page }) => page.locator("hm-line").getAttribute("data-phase")),
      );
    await expect.poll(async () => (await phases()).sort()).toEqual(["elsewhere", "ready"]);
    await expect.poll(() => other.answers()).toEqual(["echo: from the first"]);
    await chat.say("live");
    await other.answer("echo: live");
    // Who uses a window takes the lead with it.
    await other.say("from the second");
    await other.answer("echo: from the second");
    await chat.phase("elsewhere");
    await chat.answer("echo: from the second");
    const all = ["echo: from the first", "echo: live", "echo: from the second"];
    await expect.poll(() => chat.answers()).toEqual(all);
    await expect.poll(() => other.answers()).toEqual(all);
    await expect.poll(() => other.sent()).toEqual(["from the first", "live", "from the second"]);
    // And what is cleared in one is cleared in all.
    await chat.page.getByRole("button", { name: "Clear this conversation" }).click();
    await chat.page.locator("dialog .danger").click();
    for (const { page } of [chat, other]) {
      await expect.poll(() => page.locator("hm-entry").count()).toBe(0);
    }
    await other.page.reload();
    await other.page.locator("hm-log .empty").waitFor(); // said when the disk has been read
    expect(await other.page.locator("hm-entry").count()).toBe(0);
    browser.expectCalm();
  });
});

describe("the chat by itself", () => {
  let running: Running;
  let line: Line;

  beforeAll(async () => {
    running = await startScripted();
    line = await Line.to(running.door);
  });
  afterAll(async () => {
    await line.close();
    await running.stop();
  });

  const LOOKS = [
    { name: "a phone, light", ...PHONE, dark: false },
    { name: "a phone, dark", ...PHONE, dark: true },
    { name: "a desktop, light", width: 1280, height: 800, dark: false },
    { name: "a desktop, dark", width: 1280, height: 800, dark: true },
  ];
  test.each(LOOKS)("has no serious barrier on $name", async (look) => {
    const browser = await Browser.start(look);
    try {
      const chat = new ChatPage(await browser.page());
      await chat.page.goto(`http://${line.address}/chat/`);
      await chat.page.locator("hm-agent-form").waitFor();
      await expectAccessible(chat.page);
      await chat.connect(line.address, running.token);
      await expectAccessible(chat.page);
      await chat.say("# One\n\n- a\n- b\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```");
      await chat.page.locator("hm-entry.said table").waitFor();
      await expectAccessible(chat.page);
      const wide = await chat.page.evaluate(
        () => document.documentElement.scrollWidth - window.innerWidth,
      );
      expect(wide).toBeLessThanOrEqual(0);
      await chat.say("clarify Tea or coffee?|tea|coffee");
      await chat.card();
      await expectAccessible(chat.page);
      if (look.width < 500) {
        await chat.page.getByRole("button", { name: "Agents and settings" }).click();
        await chat.page.locator("dialog.sheet[open]").waitFor();
        await expectAccessible(chat.page);
      }
      browser.expectCalm();
    } finally {
      await browser.close();
    }
  });

  test.each([
    ["ru-RU", "На связи", "Сообщение"],
    ["zh-CN", "已连接", "消息"],
  ])("speaks %s", async (locale, connected, placeholder) => {
    const browser = await Browser.start({ locale });
    try {
      const chat = new ChatPage(await browser.page());
      await chat.connect(line.address, running.token);
      await expect.poll(() => chat.page.locator("hm-line").innerText()).toBe(connected);
      expect(await chat.field.getAttribute("placeholder")).toBe(placeholder);
      expect(await chat.page.getAttribute("html", "lang")).toBe(locale.slice(0, 2));
    } finally {
      await browser.close();
    }
  });

  test("says why it may not come in, and keeps the token out of every address", async () => {
    const browser = await Browser.start();
    try {
      const page = await browser.page();
      await page.goto(
        `http://${line.address}/chat/?token=from-the-address&url=ws://evil.example/ws`,
      );
      expect(await page.locator("#agent-token").inputValue()).toBe("");
      expect(await page.locator("#agent-url").inputValue()).toBe(`ws://${line.address}/ws`);
      await page.locator("#agent-token").fill("not-the-right-token");
      await page.locator("hm-agent-form button[type=submit]").click();
      await page.getByText("does not accept this token").waitFor();
      await expectAccessible(page);
      expect(browser.requests.filter((request) => request.includes("not-the-right"))).toEqual([]);
    } finally {
      await browser.close();
    }
  });

  test("takes a connection code that is pasted", async () => {
    const browser = await Browser.start(PHONE);
    try {
      const page = await browser.page();
      await page.goto(`http://${line.address}/chat/`);
      await page.getByRole("button", { name: "Paste a code" }).click();
      const code = {
        hermes_mobile: 1,
        url: `ws://${line.address}/ws`,
        token: running.token,
        name: "Pasted",
      };
      await page.locator("textarea.code").fill(JSON.stringify(code));
      await page.locator("hm-agent-form button[type=submit]").click();
      await page.locator("hm-line[data-phase=ready]").waitFor();
      await expect.poll(() => page.locator("h1").innerText()).toBe("Pasted");
    } finally {
      await browser.close();
    }
  });

  test("reads a connection code from a picture of it", async () => {
    const browser = await Browser.start();
    const folder = await mkdtemp(join(tmpdir(), "hermes-code-"));
    try {
      const page = await browser.page();
      await page.goto(`http://${line.address}/chat/`);
      const code = { hermes_mobile: 1, url: "wss://agent.example.com/ws", token: "from-the-code" };
      const picture = join(folder, "code.png");
      execFileSync(join(ROOT, ".venv/bin/segno"), [
        ...["--output", picture, "--scale", "6"],
        JSON.stringify(code),
      ]);
      await page.locator("hm-agent-form input[type=file]").setInputFiles(picture);
      await expect.poll(() => page.locator("#agent-token").inputValue()).toBe("from-the-code");
      expect(await page.locator("#agent-url").inputValue()).toBe("wss://agent.example.com/ws");
      browser.expectCalm();
    } finally {
      await browser.close();
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("sends a failed message again, and takes one back", async () => {
    const browser = await Browser.start();
    const own = await Line.to(running.door);
    try {
      const chat = new ChatPage(await browser.page());
      await chat.connect(own.address, running.token);
      await chat.page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
      own.cut();
      await chat.phase("waiting");
      await chat.page
        .locator("hm-composer input[type=file]")
        .setInputFiles({ name: "late.txt", mimeType: "text/plain", buffer: Buffer.from("late") });
      await chat.page.locator("hm-composer button[type=submit]").click();
      await chat.page.locator(".upload").getByRole("button", { name: "Cancel" }).click();
      await expect.poll(() => chat.page.locator("hm-entry").count()).toBe(0);
      await chat.say("kept over a reload");
      await chat.page.locator("hm-entry.mine").getByText("Waiting").waitFor();
      await chat.page.reload();
      await chat.page.locator("hm-entry.mine").getByText("Waiting").waitFor();
      own.mend();
      await chat.answer("echo: kept over a reload");
      expect(await chat.sent()).toEqual(["kept over a reload"]);
      await chat.say("fail");
      await chat.page.getByRole("button", { name: "Send again" }).waitFor();
      await chat.page.getByRole("button", { name: "Remove" }).click();
      await expect.poll(() => chat.sent()).not.toContain("fail");
      browser.expectCalm(CUT);
    } finally {
      await browser.close();
      await own.close();
    }
  });

  test("takes back after a reload what still waits", async () => {
    const browser = await Browser.start();
    const own = await Line.to(running.door);
    try {
      const chat = new ChatPage(await browser.page());
      await chat.connect(own.address, running.token);
      await chat.page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
      own.cut();
      await chat.phase("waiting");
      const file = { name: "unwanted.txt", mimeType: "text/plain", buffer: Buffer.from("x") };
      await chat.page.locator("hm-composer input[type=file]").setInputFiles(file);
      await chat.page.locator("hm-composer button[type=submit]").click();
      await chat.say("wanted");
      await chat.page.locator("hm-entry.mine").nth(1).getByText("Waiting").waitFor();
      await chat.page.reload();
      await chat.page.locator(".upload").getByRole("button", { name: "Cancel" }).click();
      own.mend();
      await chat.answer("echo: wanted");
      expect(await chat.answers()).toEqual(["echo: wanted"]);
      browser.expectCalm(CUT);
    } finally {
      await browser.close();
      await own.close();
    }
  });

  test("answers a card that was open before a reload", async () => {
    const browser = await Browser.start();
    try {
      const chat = new ChatPage(await browser.page());
      await chat.connect(line.address, running.token);
      await chat.say("approve rm -rf /tmp/no-such-folder");
      await chat.card();
      await chat.page.reload();
      await chat.ready();
      await (await chat.card()).getByRole("button", { name: "Allow once" }).click();
      await chat.answer("approval: once");
      await expect.poll(() => chat.outcomes()).toEqual(["Allowed once"]);
      browser.expectCalm();
    } finally {
      await browser.close();
    }
  });

  test("keeps several agents apart, and forgets one for good", async () => {
    const browser = await Browser.start();
    try {
      const chat = new ChatPage(await browser.page());
      const { page } = chat;
      await chat.connect(line.address, running.token);
      await chat.say("for the first");
      await chat.answer("echo: for the first");
      await page.getByRole("button", { name: "Add an agent" }).click();
      await page.locator("dialog #agent-token").fill(running.token);
      await page.locator("dialog #agent-name").fill("Second");
      await page.locator("dialog button[type=submit]").click();
      await page.locator("h1", { hasText: "Second" }).waitFor();
      await expect.poll(() => page.locator("hm-entry").count()).toBe(0);
      await chat.ready();
      await chat.say("for the second");
      await chat.answer("echo: for the second");
      await page.getByRole("button", { name: /^Hermes/ }).click();
      await expect.poll(() => chat.answers()).toEqual(["echo: for the first"]);
      await page.getByRole("button", { name: /^Second/ }).click();
      await expect.poll(() => chat.answers()).toEqual(["echo: for the second"]);
      await page.getByRole("button", { name: "Change the agent" }).click();
      await page.getByRole("button", { name: "Remove this agent" }).click();
      await page.locator("dialog .row .danger").click();
      await page.locator("h1", { hasText: "Hermes" }).waitFor();
      const kept = (): Promise<string> =>
        page.evaluate(() => localStorage.getItem("hermes-chat:agents") ?? "");
      await expect.poll(kept).not.toContain("Second");
      const databases = (): Promise<number> =>
        page.evaluate(
          async () =>
            (await indexedDB.databases()).filter(({ name }) => name?.startsWith("hermes-chat:"))
              .length,
        );
      await expect.poll(databases).toBe(1);
      browser.expectCalm();
    } finally {
      await browser.close();
    }
  });

  test("takes files that are pasted and dropped", async () => {
    const browser = await Browser.start();
    try {
      const chat = new ChatPage(await browser.page());
      await chat.connect(line.address, running.token);
      await chat.page.evaluate(() => {
        const carry = (name: string): DataTransfer => {
          const data = new DataTransfer();
          data.items.add(new File([name], name, { type: "text/plain" }));
          return data;
        };
        const field = document.querySelector("hm-composer textarea");
        const shell = document.querySelector(".shell");
        field?.dispatchEvent(
          new ClipboardEvent("paste", { clipboardData: carry("pasted.txt"), bubbles: true }),
        );
        const drop = { dataTransfer: carry("dropped.txt"), bubbles: true, cancelable: true };
        shell?.dispatchEvent(new DragEvent("dragenter", drop));
        shell?.dispatchEvent(new DragEvent("drop", drop));
      });
      await chat.page.locator(".tray li").nth(1).waitFor();
      await chat.page.locator("hm-composer button[type=submit]").click();
      await chat.answer(/pasted\.txt/);
      await chat.answer(/dropped\.txt/);
      browser.expectCalm();
    } finally {
      await browser.close();
    }
  });

  test("refuses what is too large before it is sent", async () => {
    const browser = await Browser.start();
    try {
      const chat = new ChatPage(await browser.page());
      await chat.connect(line.address, running.token);
      await chat.page.evaluate(() => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(8 * 1024 * 1024 + 1)], "huge.bin"));
        data.items.add(new File([], "empty.txt"));
        data.items.add(new File(["good"], "good.txt"));
        const drop = { dataTransfer: data, bubbles: true, cancelable: true };
        document.querySelector(".shell")?.dispatchEvent(new DragEvent("drop", drop));
      });
      await chat.page.getByText("huge.bin is too large. At most 8 MB.").waitFor();
      await chat.page.getByText("empty.txt is empty.").waitFor();
      await chat.page.locator("hm-composer .tray").getByText("good.txt").waitFor();
      await chat.field.fill("x".repeat(12_001));
      await chat.page.getByText("12001 of 12000 characters").waitFor();
      expect(await chat.page.locator("hm-composer button[type=submit]").isDisabled()).toBe(true);
    } finally {
      await browser.close();
    }
  });

  test("opens without a network", async () => {
    const browser = await Browser.start();
    const own = await Line.to(running.door);
    try {
      const chat = new ChatPage(await browser.page());
      await chat.connect(own.address, running.token);
      await chat.say("hello");
      await chat.answer("echo: hello");
      await chat.page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
      await expect
        .poll(() => chat.page.evaluate(() => navigator.serviceWorker.controller !== null))
        .toBe(true);
      own.cut();
      await chat.page.reload();
      await chat.phase("waiting");
      await expect.poll(() => chat.answers()).toEqual(["echo: hello"]);
      browser.expectCalm(CUT);
    } finally {
      await browser.close();
      await own.close();
    }
  });
});
