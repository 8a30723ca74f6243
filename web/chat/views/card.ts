/** A question of the agent: what is asked exactly, how long there is, what was answered. */
import {
  html,
  nothing,
  type PropertyDeclarations,
  type PropertyValues,
  type TemplateResult,
} from "lit";
import { MarkdownView, copyText } from "../../markdown/view.ts";
import type { Conversation } from "../conversation.ts";
import type { Asked } from "../entries.ts";
import { minutes } from "../format.ts";
import { icons } from "./icons.ts";
import { View } from "./view.ts";

const OTHER = "other";

export class CardView extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    entry: { attribute: false },
    conversation: { attribute: false },
    online: { attribute: false },
    now: { state: true },
    writing: { state: true },
    copied: { state: true },
  };
  declare entry: Asked;
  declare conversation: Conversation;
  declare online: boolean;
  declare now: number;
  declare writing: boolean;
  declare copied: boolean;
  #timer: ReturnType<typeof setInterval> | undefined;
  #markdown: MarkdownView | undefined;
  #hadFocus = false;

  constructor() {
    super();
    this.now = Date.now();
    this.writing = false;
    this.copied = false;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#timer = setInterval(() => {
      if (this.entry.outcome === undefined) this.now = Date.now();
    }, 1_000);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  protected override willUpdate(): void {
    this.#hadFocus = this.contains(document.activeElement);
  }

  protected override updated(changed: PropertyValues<this>): void {
    const host = this.find<HTMLElement>(".markdown");
    if (host !== undefined) {
      this.#markdown ??= new MarkdownView(host, this.words);
      this.#markdown.words = this.words;
      this.#markdown.update(this.entry.card.text, true);
    }
    if (changed.has("writing") && this.writing) this.find<HTMLElement>("textarea")?.focus();
    // A button that went with its press must not take the keyboard's place in the page with it.
    else if (this.#hadFocus && !this.contains(document.activeElement)) {
      this.find<HTMLElement>(".card")?.focus({ preventScroll: true });
    }
  }

  protected override render(): unknown {
    const { entry, words } = this;
    const { card, outcome } = entry;
    const left = card.deadline - this.now;
    const over = outcome !== undefined || left <= 0;
    const known = words.cardKind[card.kind];
    const title = known ?? card.text;
    // The door's own heading of an approval says the same in English.
    const text =
      card.kind === "exec_approval" && known !== undefined
        ? ""
        : known === undefined
          ? ""
          : card.text;
    return html`<section
      class="card ${card.kind} ${over ? "over" : "open"}"
      tabindex="-1"
      aria-labelledby="title-${card.id}"
    >
      <header>
        <span class="badge"
          >${card.kind === "exec_approval" ? icons.terminal : icons.question}</span
        >
        <h2 id="title-${card.id}">${title}</h2>
        ${
          over
            ? nothing
            : html`<span class="time ${left < 30_000 ? "soon" : ""}" role="timer"
                >${icons.clock}${words.timeLeft(minutes(left))}</span
              >`
        }
      </header>
      ${text === "" ? nothing : html`<div class="markdown"></div>`}
      ${card.command === undefined ? nothing : this.#command(card.command)}
      ${card.description === undefined ? nothing : html`<p class="about">${card.description}</p>`}
      ${over ? this.#outcome(left) : this.#choices()}
    </section>`;
  }

  #command(command: string): TemplateResult {
    const { words } = this;
    return html`<div class="command">
      <pre tabindex="0" dir="ltr" aria-label=${words.command}><code>${command}</code></pre>
      <button
        type="button"
        class="quiet"
        aria-label=${this.copied ? words.copied : words.copy}
        title=${words.copy}
        @click=${async () => {
          this.copied = await copyText(command);
        }}
      >
        ${this.copied ? icons.check : icons.copy}
      </button>
    </div>`;
  }

  #choices(): TemplateResult {
    const { entry, words } = this;
    const { card, chosen } = entry;
    if (chosen !== undefined) {
      return html`<p class="pending" role="status">
        <span class="spinner" aria-hidden="true"></span>
        ${this.online ? words.answering : words.waitsForConnection}
      </p>`;
    }
    const choices = card.options.filter((option) => option.id !== OTHER);
    const free = card.kind === "clarify";
    const open = free && (this.writing || choices.length === 0);
    return html`<div class="choices">
        ${choices.map(
          (option) =>
            html`<button
              type="button"
              class="choice ${
                option.style === "primary" || option.style === "danger" ? option.style : ""
              }"
              @click=${() => this.conversation.answer(entry, option.id, undefined)}
            >
              ${this.#label(option.id, option.label)}
            </button>`,
        )}
        ${
          free && !open
            ? html`<button
                type="button"
                class="choice"
                @click=${() => {
                  this.writing = true;
                }}
              >
                ${words.option["clarify other"]}
              </button>`
            : nothing
        }
      </div>
      ${
        open
          ? html`<form class="own" @submit=${this.#answerOwn}>
              <textarea
                rows="2"
                dir="auto"
                maxlength="12000"
                required
                aria-label=${words.yourAnswer}
                placeholder=${words.yourAnswer}
                @keydown=${this.#keyed}
              ></textarea>
              <button type="submit" class="choice primary">${words.answer}</button>
            </form>`
          : nothing
      }`;
  }

  #outcome(left: number): TemplateResult {
    const { entry, words } = this;
    const { card, outcome } = entry;
    const expired = outcome?.expired ?? left <= 0;
    const applied = outcome?.optionId;
    const kind = `${card.kind} ${applied ?? ""}`;
    let told: string;
    if (expired) told = words.expired[card.kind] ?? words.expiredElse;
    else if (entry.answerText !== undefined) told = words.answered(entry.answerText);
    else if (applied === undefined) told = words.expiredElse;
    else if (words.outcome[kind] !== undefined) told = words.outcome[kind];
    else if (applied === OTHER) told = words.answeredOwn;
    else {
      const option = card.options.find(({ id }) => id === applied);
      told = words.answered(option?.label ?? applied);
    }
    const refused = expired || applied === "deny" || applied === "cancel";
    return html`<p class="outcome ${refused ? "refused" : "taken"}" role="status">
      ${expired ? icons.clock : refused ? icons.close : icons.check} <span>${told}</span>
    </p>`;
  }

  #label(id: string, label: string): string {
    const { kind } = this.entry.card;
    return kind === "clarify" ? label : (this.words.option[`${kind} ${id}`] ?? label);
  }

  readonly #answerOwn = (event: Event): void => {
    event.preventDefault();
    const text = this.find<HTMLTextAreaElement>("textarea")?.value.trim() ?? "";
    if (text !== "") this.conversation.answer(this.entry, OTHER, text);
  };

  readonly #keyed = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229)
      return;
    event.preventDefault();
    (event.target as HTMLTextAreaElement).form?.requestSubmit();
  };
}

customElements.define("hm-card", CardView);
