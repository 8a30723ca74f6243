/** The agents this browser knows, and the person's choices. Kept in `localStorage`, nowhere else. */
import { randomId } from "@hermes-mobile/client";
import { isLanguage, type Language } from "./words/index.ts";

export interface Agent {
  /** Of this browser alone; names its databases. */
  readonly id: string;
  readonly name: string;
  readonly url: string;
  readonly token: string;
  /** Stable: it is the address of this browser, `mobile:<deviceId>`. */
  readonly deviceId: string;
}

export interface Choices {
  readonly language: Language | "auto";
  readonly theme: "auto" | "light" | "dark";
  readonly userName: string;
  readonly current: string;
}

const AGENTS = "hermes-chat:agents";
const CHOICES = "hermes-chat:choices";
const NO_CHOICES: Choices = { language: "auto", theme: "auto", userName: "", current: "" };

export function loadAgents(storage: Storage): Agent[] {
  const value = read(storage, AGENTS);
  return Array.isArray(value) ? value.filter(isAgent) : [];
}

/** @returns false if the browser keeps nothing */
export function saveAgents(storage: Storage, agents: readonly Agent[]): boolean {
  return write(storage, AGENTS, agents);
}

export function loadChoices(storage: Storage): Choices {
  const value = (read(storage, CHOICES) ?? {}) as Partial<Record<keyof Choices, unknown>>;
  return {
    language: isLanguage(value.language) ? value.language : "auto",
    theme: value.theme === "light" || value.theme === "dark" ? value.theme : "auto",
    userName: typeof value.userName === "string" ? value.userName : "",
    current: typeof value.current === "string" ? value.current : "",
  };
}

export function saveChoices(storage: Storage, choices: Choices): boolean {
  return write(storage, CHOICES, choices);
}

/** A name that the door accepts as a device id and that nobody else has. */
export function newDeviceId(): string {
  return `web-${randomId().replaceAll("-", "").slice(0, 12)}`;
}

export function newAgentId(): string {
  return randomId();
}

/** What a page may use when the browser closes its storage: nothing survives the page. */
export function pageStorage(): Storage {
  try {
    const storage = window.localStorage;
    storage.getItem(AGENTS);
    return storage;
  } catch {
    return memory();
  }
}

function memory(): Storage {
  const values = new Map<string, string>();
  return {
    get length() {
      return values.size;
    },
    clear: () => {
      values.clear();
    },
    getItem: (key) => values.get(key) ?? null,
    key: (index) => [...values.keys()][index] ?? null,
    removeItem: (key) => {
      values.delete(key);
    },
    setItem: (key, value) => {
      values.set(key, value);
    },
  };
}

export { NO_CHOICES };

function isAgent(value: unknown): value is Agent {
  const agent = value as Partial<Record<keyof Agent, unknown>> | null;
  return (
    typeof agent === "object" &&
    agent !== null &&
    [agent.id, agent.name, agent.url, agent.token, agent.deviceId].every(
      (field) => typeof field === "string",
    )
  );
}

function read(storage: Storage, key: string): unknown {
  try {
    return JSON.parse(storage.getItem(key) ?? "null") as unknown;
  } catch {
    return undefined;
  }
}

function write(storage: Storage, key: string, value: unknown): boolean {
  try {
    storage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
