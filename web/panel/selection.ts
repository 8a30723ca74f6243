/** The text that is selected in the page around the panel. */
import { beginningOf } from "./context.ts";

/** More than this is cut: the proxy takes 64 KiB together with the page's context. */
const LONGEST = 12_000;
/** Input types whose text may be read; never a password. */
const READABLE = new Set(["text", "search", "url", ""]);

export class PageSelection {
  readonly #panel: HTMLElement;
  readonly #changed: (text: string) => void;
  #text = "";
  #insideUntil = 0;

  constructor(panel: HTMLElement, changed: (text: string) => void) {
    this.#panel = panel;
    this.#changed = changed;
  }

  get text(): string {
    return this.#text;
  }

  start(): void {
    document.addEventListener("selectionchange", this.#look);
    this.#panel.addEventListener("pointerdown", this.#inside);
  }

  stop(): void {
    document.removeEventListener("selectionchange", this.#look);
    this.#panel.removeEventListener("pointerdown", this.#inside);
  }

  drop(): void {
    this.#set("");
  }

  /** A press inside the panel ends the page's selection, which is no wish to drop it. */
  readonly #inside = (): void => {
    this.#insideUntil = performance.now() + 500;
  };

  readonly #look = (): void => {
    const selection = document.getSelection();
    const anchor = selection?.anchorNode ?? undefined;
    const inside =
      anchor !== undefined &&
      (this.#panel.contains(anchor) || anchor.getRootNode() === this.#panel.shadowRoot);
    if (inside) return;
    // A selection that ends because the person turned to the panel is still what they mean.
    const turned = document.activeElement === this.#panel || performance.now() < this.#insideUntil;
    if (turned && selection?.isCollapsed !== false) return;
    this.#set(beginningOf(selectedText().trim(), LONGEST));
  };

  #set(text: string): void {
    if (text === this.#text) return;
    this.#text = text;
    this.#changed(text);
  }
}

function selectedText(): string {
  const field = document.activeElement;
  if (
    field instanceof HTMLTextAreaElement ||
    (field instanceof HTMLInputElement && READABLE.has(field.type))
  ) {
    return field.value.slice(field.selectionStart ?? 0, field.selectionEnd ?? 0);
  }
  return field instanceof HTMLInputElement ? "" : (document.getSelection()?.toString() ?? "");
}
