/** A text of the agent inside the panel. Plain DOM, so that the panel's own stylesheet reaches it. */
import { MarkdownView, type MarkdownWords } from "../markdown/view.ts";

export class PanelText extends HTMLElement {
  #view: MarkdownView | undefined;
  #text = "";
  #words: MarkdownWords = { copy: "Copy", copied: "Copied", code: "Code" };
  #growing = false;

  set words(words: MarkdownWords) {
    this.#words = words;
    if (this.#view !== undefined) this.#view.words = words;
  }

  set growing(growing: boolean) {
    this.#growing = growing;
    this.classList.toggle("growing", growing);
    this.#show();
  }

  set text(text: string) {
    this.#text = text;
    this.#show();
  }

  connectedCallback(): void {
    this.classList.add("markdown");
    this.#view ??= new MarkdownView(this, this.#words);
    this.#show();
  }

  #show(): void {
    this.#view?.update(this.#text, !this.#growing);
  }
}
