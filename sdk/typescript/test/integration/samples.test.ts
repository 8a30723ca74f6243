/** The samples of the documentation that run here, run: on the built package and the real door. */
import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { Window } from "happy-dom";
import { WebSocket } from "ws";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { TOKEN, startDoor, type Door } from "../support/programs.ts";
import { sample } from "../support/samples.ts";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
const run = promisify(execFile);
/** Milliseconds; a busy machine takes its time. */
const PATIENCE = 60_000;

let door: Door;
let folder: string;
const stops: (() => Promise<void> | void)[] = [];

beforeAll(async () => {
  // A project of its own with the built package in it, inside this one so that `ws` is found.
  folder = mkdtempSync(join(PACKAGE, ".samples-"));
  stops.push(() => {
    rmSync(folder, { recursive: true, force: true });
  });
  const installed = join(folder, "node_modules", "@hermes-mobile", "client");
  const compiler = join(PACKAGE, "node_modules", "typescript", "bin", "tsc");
  const target = join(installed, "dist");
  await run(process.execPath, [compiler, "-p", "tsconfig.build.json", "--outDir", target], {
    cwd: PACKAGE,
  });
  cpSync(join(PACKAGE, "package.json"), join(installed, "package.json"));
  cpSync(target, join(folder, "hermes"), { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  door = await startDoor();
  stops.push(door.stop);
});

afterAll(async () => {
  vi.unstubAllGlobals();
  for (const stop of stops.reverse()) await stop();
});

test("README: a conversation", async () => {
  const file = join(folder, "talk.mjs");
  writeFileSync(file, sample("sdk/typescript/README.md", "talk.mjs"));
  const { stdout, stderr } = await run(process.execPath, [file], {
    env: { ...process.env, MOBILE_URL: door.url, MOBILE_TOKEN: TOKEN },
    timeout: 120_000,
  });

  expect(stderr).toBe("");
  expect(stdout).toContain("connection: ready");
  expect(stdout).toMatch(/done: word1 word2 word3 word4 word5\n/);
  expect(stdout).toContain("connection: stopped The app closed the connection.");
});

test("docs/first-app-web.md: the page", async () => {
  const page = "docs/first-app-web.md";
  writeFileSync(join(folder, "app.js"), sample(page, "app.js"));
  const window = new Window({ url: "http://127.0.0.1:5173/" });
  const { document } = window;
  document.write(sample(page, "index.html").replace(/<script[^]*?<\/script>/, ""));
  vi.stubGlobal("document", document);
  vi.stubGlobal("localStorage", window.localStorage);
  vi.stubGlobal("WebSocket", WebSocket);
  const element = (selector: string) => {
    const found = document.querySelector(selector);
    if (found === null) throw new Error(`the page has no ${selector}`);
    return found as unknown as HTMLInputElement;
  };
  const submit = (selector: string): void => {
    element(selector).dispatchEvent(new window.Event("submit", { cancelable: true }) as never);
  };
  const shows = (text: string): Promise<void> =>
    vi.waitFor(
      () => {
        expect(document.body.textContent).toContain(text);
      },
      { timeout: PATIENCE, interval: 20 },
    );
  const say = (text: string): void => {
    element("#text").value = text;
    submit("#write");
  };
  const press = (label: string): void => {
    const button = [...document.querySelectorAll("button")].find(
      (each) => each.textContent === label,
    );
    if (button === undefined) throw new Error(`the page has no button ${label}`);
    button.click();
  };

  await import(pathToFileURL(join(folder, "app.js")).href);
  element("#url").value = door.url;
  element("#token").value = TOKEN;
  submit("#sign-in");
  await shows("Connected.");

  say("hello");
  await shows("echo: hello");
  await shows("hello  ✓✓");

  say("stream 20 5");
  await shows("word19 word20");
  expect(document.querySelectorAll("#log p:not(.mine)")).toHaveLength(2);

  say("approve rm -rf build");
  await shows("Allow this command?");
  expect(element("#cards code").textContent).toBe("rm -rf build");
  press("Allow once");
  await shows("Answered: once");
  await shows("approval: once");

  say("image");
  await vi.waitFor(
    () => {
      expect(document.querySelector("#log img")?.getAttribute("src")).toMatch(/^blob:/);
    },
    { timeout: PATIENCE, interval: 20 },
  );

  say("<img src=x onerror=alert(1)>");
  await shows("echo: <img src=x onerror=alert(1)>");

  say("x".repeat(12_001));
  await shows("The text is longer than 12000 characters. Split it.");

  element("#token").value = "not-the-token-of-this-door";
  submit("#sign-in");
  await shows("The agent does not accept this token or this device");
  await window.happyDOM.close();
});
