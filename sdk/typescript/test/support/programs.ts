/** Real servers for the integration tests: started on free ports, ended by their process id. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const BIN = join(ROOT, ".venv", "bin");
/** Shorter than the limit of a hook, which would leave the program behind. */
const START_PATIENCE = 180_000;
/** The demo gives its own programs 8 s to end before it kills them. */
const STOP_PATIENCE = 40_000;

export interface Program {
  readonly output: () => string;
  stop(): Promise<void>;
}

/** Starts a program of the checkout and waits for a line of its output. */
async function start(
  command: string,
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  awaited: RegExp,
): Promise<Program & { readonly match: RegExpExecArray }> {
  const child = spawn(join(BIN, command), args, {
    cwd: ROOT,
    env: {
      PATH: process.env["PATH"],
      HOME: process.env["HOME"],
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  let late = false;
  const match = await new Promise<RegExpExecArray>((resolve, reject) => {
    const timer = setTimeout(() => {
      late = true;
      void ended(child);
    }, START_PATIENCE);
    const read = (piece: Buffer): void => {
      output += piece.toString();
      const found = awaited.exec(output);
      if (found === null) return;
      clearTimeout(timer);
      resolve(found);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(
        new Error(`${command} cannot be started (run \`make setup\` first): ${error.message}`),
      );
    });
    child.once("exit", (code) => {
      clearTimeout(timer);
      const how = late ? "was not ready in time" : `ended with ${code}`;
      reject(new Error(`${command} ${how}:\n${output}`));
    });
  });
  return { output: () => output, match, stop: () => ended(child) };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise<void>((resolve) => {
    child.once("exit", () => {
      resolve();
    });
  });
  child.kill("SIGINT");
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_PATIENCE);
  await exit;
  clearTimeout(timer);
}

export const TOKEN = "token-of-the-integration-tests";

export interface Door extends Program {
  readonly url: string;
  readonly port: number;
}

/** The device door with the scripted agent. */
export async function startDoor(): Promise<Door> {
  const program = await start(
    "hermes-mobile",
    ["serve", "--agent", "demo", "--port", "0"],
    { MOBILE_TOKEN: TOKEN },
    /ws:\/\/127\.0\.0\.1:(\d+)\/ws/,
  );
  return { ...program, url: program.match[0], port: Number(program.match[1]) };
}

export interface Everything extends Program {
  readonly doorUrl: string;
  readonly token: string;
  readonly webUrl: string;
  readonly loginUrl: string;
}

/** A real Hermes Agent with the offline model and both doors, in a home of its own. */
export async function startEverything(): Promise<Everything> {
  const home = mkdtempSync(join(tmpdir(), "hermes-sdk-"));
  const environment = { DEMO_HOME: home, MOBILE_PORT: "0", DEMO_WEB_PORT: "0" };
  const awaited =
    /Device door +(\S+)\n[^]*Token +(\S+)\n[^]*Browser door +(\S+)\n[^]*Log in once +(\S+)\n[^]*Stop with/;
  try {
    const program = await start("python", ["-m", "demo"], environment, awaited);
    const [, doorUrl = "", token = "", webUrl = "", loginUrl = ""] = program.match;
    return {
      ...program,
      doorUrl,
      token,
      webUrl,
      loginUrl,
      stop: async () => {
        await program.stop();
        rmSync(home, { recursive: true, force: true });
      },
    };
  } catch (error) {
    rmSync(home, { recursive: true, force: true });
    throw error;
  }
}
