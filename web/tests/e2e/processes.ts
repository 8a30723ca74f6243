/** The servers the pages are tested against. Everything started here is ended by its pid. */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));
export const TOKEN = "web-tests-token-0123456789";
/** What `make setup` makes: the older run interface and the newer one. */
export const HERMES_VERSIONS = ["0.19.0", "0.22.2.post1"] as const;
/** Shorter than the limit of a hook, which would leave the program behind. */
const START_MS = 200_000;
/** The demo gives its own programs 8 s to end before it kills them. */
const STOP_MS = 40_000;

export interface Running {
  /** Host and port of the device door, which serves the chat and the avatar. */
  readonly door: string;
  readonly token: string;
  /** Address of the browser door, which serves the panel; only of the real Hermes. */
  readonly web?: string;
  readonly login?: string;
  stop(): Promise<void>;
}

/** The device door with the scripted agent: no Hermes. */
export async function startScripted(): Promise<Running> {
  const command = needed(join(ROOT, ".venv/bin/hermes-mobile"));
  const process_ = start(command, ["serve", "--agent", "demo", "--port", "0"], {
    MOBILE_TOKEN: TOKEN,
  });
  const found = await process_.says(/ws:\/\/([\w.:[\]]+)\/ws/).catch(async (error: unknown) => {
    await process_.stop();
    throw error;
  });
  return { door: found[1] ?? "", token: TOKEN, stop: process_.stop };
}

/** Both doors on a real Hermes Agent of this version, as `make run` starts them. */
export async function startHermes(
  version: (typeof HERMES_VERSIONS)[number] = HERMES_VERSIONS[0],
): Promise<Running> {
  const command = needed(join(ROOT, ".venv/bin/python"));
  const home = await mkdtemp(join(tmpdir(), "hermes-web-"));
  const process_ = start(command, ["-m", "demo"], {
    DEMO_HOME: home,
    DEMO_HERMES: needed(join(ROOT, ".hermes-env", version)),
    MOBILE_PORT: "0",
    DEMO_WEB_PORT: "0",
    MOBILE_TOKEN: TOKEN,
  });
  const stop = async (): Promise<void> => {
    await process_.stop();
    await rm(home, { recursive: true, force: true });
  };
  try {
    const [, door = "", web = "", login = ""] = await process_.says(
      /Device door\s+ws:\/\/([\w.:]+)\/ws\s[^]*Browser door\s+(http\S+)\s[^]*Log in once\s+(http\S+)\s/,
    );
    return { door, token: TOKEN, web, login, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function needed(command: string): string {
  if (!existsSync(command)) throw new Error(`${command} is missing. Run: make setup`);
  return command;
}

interface Started {
  /** Waits until the output matches. */
  says(pattern: RegExp): Promise<RegExpMatchArray>;
  stop(): Promise<void>;
}

function start(command: string, args: string[], settings: Record<string, string>): Started {
  const clean = Object.entries(process.env).filter(
    ([name]) => !/^(MOBILE|MNOTE|DEMO)_|^PYTHONUNBUFFERED$/.test(name),
  );
  const child: ChildProcess = spawn(command, args, {
    cwd: ROOT,
    env: { ...Object.fromEntries(clean), ...settings },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const heard = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      for (const listener of [...heard]) listener();
    });
  }
  const ended = new Promise<void>((resolve) => {
    child.once("exit", () => {
      for (const listener of [...heard]) listener();
      resolve();
    });
  });

  return {
    says: (pattern) =>
      new Promise((resolve, reject) => {
        const late = setTimeout(() => {
          finish(() => {
            reject(new Error(`${command} did not say ${String(pattern)}:\n${output}`));
          });
        }, START_MS);
        const finish = (end: () => void): void => {
          clearTimeout(late);
          heard.delete(look);
          end();
        };
        const look = (): void => {
          const found = pattern.exec(output);
          if (found !== null) {
            finish(() => {
              resolve(found);
            });
          } else if (child.exitCode !== null || child.signalCode !== null) {
            finish(() => {
              reject(new Error(`${command} ended:\n${output}`));
            });
          }
        };
        heard.add(look);
        look();
      }),
    stop: async () => {
      child.kill("SIGTERM");
      const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
      await ended;
      clearTimeout(late);
    },
  };
}
