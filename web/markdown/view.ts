/**
 * Keeps an element equal to a growing Markdown text.
 *
 * An answer arrives as hundreds of revisions. Only the pieces that changed are built again, so that
 * a selection, a scrolled code block and the reader's place survive, and a long answer stays cheap.
 */
import { blocksOf } from "./html.ts";

export interface MarkdownWords {
  readonly copy: string;
  readonly copied: string;
  readonly code: string;
}

/** A view that took this many milliseconds may use at most a quarter of the time. */
const REST_FACTOR = 3;
const COPIED_SHOWN = 1_600;

export class MarkdownView {
  readonly #host: HTMLElement;
  #words: MarkdownWords;
  #keys: string[] = [];
  #text = "";
  #shown: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #notBefore = 0;

  constructor(host: HTMLElement, words: MarkdownWords) {
    this.#host = host;
    this.#words = words;
    host.addEventListener("click", (event) => {
      const button = (event.target as Element).closest?.("button[data-copy]");
      if (button instanceof HTMLButtonElement) void this.#copy(button);
    });
  }

  set words(words: MarkdownWords) {
    if (words === this.#words) return;
    this.#words = words;
    if (this.#shown === undefined) return;
    // What stands beside the code is written in the new language as well.
    this.#keys = [];
    this.#render();
  }

  /** Shows `text`: at once if there is time, else with what has come by then. */
  update(text: string, now = false): void {
    this.#text = text;
    if (text === this.#shown || (this.#timer !== undefined && !now)) return;
    const wait = this.#notBefore - performance.now();
    if (now || wait <= 0) {
      this.#render();
      return;
    }
    this.#timer = setTimeout(() => {
      this.#render();
    }, wait);
  }

  #render(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const began = performance.now();
    const blocks = blocksOf(this.#text);
    const pieces = this.#host.children;
    blocks.forEach((block, index) => {
      if (this.#keys[index] === block.key) return;
      const piece = document.createElement("div");
      piece.className = "piece";
      piece.append(block.build());
      this.#dress(piece);
      const old = pieces[index];
      if (old === undefined) this.#host.append(piece);
      else old.replaceWith(piece);
    });
    while (pieces.length > blocks.length) pieces[pieces.length - 1]?.remove();
    this.#keys = blocks.map((block) => block.key);
    this.#shown = this.#text;
    const ended = performance.now();
    this.#notBefore = ended + (ended - began) * REST_FACTOR;
  }

  #dress(piece: HTMLElement): void {
    for (const pre of piece.querySelectorAll("pre")) {
      const language = pre.querySelector("code")?.dataset["language"];
      const bar = document.createElement("div");
      bar.className = "code-bar";
      const name = document.createElement("span");
      name.textContent = language ?? this.#words.code;
      const copy = document.createElement("button");
      copy.type = "button";
      copy.dataset["copy"] = "";
      copy.textContent = this.#words.copy;
      bar.append(name, copy);
      const box = document.createElement("div");
      box.className = "code";
      pre.replaceWith(box);
      // Wide code scrolls sideways, which the keyboard must be able to do as well.
      pre.tabIndex = 0;
      pre.setAttribute("role", "group");
      pre.setAttribute("aria-label", language ?? this.#words.code);
      box.append(bar, pre);
    }
    for (const table of piece.querySelectorAll("table")) {
      const box = document.createElement("div");
      box.className = "table";
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      table.replaceWith(box);
      box.append(table);
    }
  }

  async #copy(button: HTMLButtonElement): Promise<void> {
    const code = button.closest(".code")?.querySelector("pre")?.textContent ?? "";
    if (!(await copyText(code))) return;
    button.textContent = this.#words.copied;
    setTimeout(() => {
      button.textContent = this.#words.copy;
    }, COPIED_SHOWN);
  }
}

/** Puts a text on the clipboard, also on a page without https. @returns whether it is there */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No clipboard in insecure pages, or not allowed: the old way still works.
  }
  const before = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text.replace(/\n$/, "");
  area.readOnly = true;
  Object.assign(area.style, { position: "fixed", top: "0", opacity: "0" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
