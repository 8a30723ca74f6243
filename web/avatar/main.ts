/**
 * The avatar page. Its owner says what the agent does, by `window.hermesAvatar.setState(state)` from
 * a WebView or by `postMessage(state | {state})` from a page that embeds it.
 */
import { stateInMessage, stateOf, type AvatarState } from "./state.ts";

interface HermesAvatar {
  /** Shows `idle`, `thinking` or `speaking`; anything else is `idle`. */
  setState(state: unknown): void;
  readonly state: AvatarState;
}

declare global {
  interface Window {
    hermesAvatar: HermesAvatar;
  }
}

const WORDS: Readonly<Record<string, Readonly<Record<AvatarState, string>>>> = {
  en: { idle: "Hermes is calm", thinking: "Hermes is thinking", speaking: "Hermes is answering" },
  ru: { idle: "Гермес спокоен", thinking: "Гермес думает", speaking: "Гермес отвечает" },
  zh: { idle: "Hermes 空闲", thinking: "Hermes 正在思考", speaking: "Hermes 正在回答" },
};

const root = document.documentElement;
const language = navigator.languages.map((tag) => tag.slice(0, 2)).find((tag) => tag in WORDS);
const words = WORDS[language ?? "en"] ?? WORDS["en"];
let current: AvatarState | undefined;

function setState(state: unknown): void {
  const next = stateOf(state);
  if (next === current) return;
  current = next;
  root.dataset["state"] = next;
  const told = words?.[next] ?? next;
  document.getElementById("face")?.setAttribute("aria-label", told);
  const status = document.getElementById("told");
  if (status !== null) status.textContent = told;
}

window.hermesAvatar = {
  setState,
  get state() {
    return current ?? "idle";
  },
};

function posted(event: Event): void {
  const state = stateInMessage((event as MessageEvent<unknown>).data);
  if (state !== undefined) setState(state);
}
window.addEventListener("message", posted);
// React Native's WebView on Android posts to the document.
document.addEventListener("message", posted);

root.lang = language ?? "en";
setState("idle");
