/** The conversation's entries, oldest first, kept at its newest end unless the person scrolled away. */
import { html, nothing, type PropertyDeclarations, type TemplateResult } from "lit";
import { repeat } from "lit/directives/repeat.js";
import type { Arriving, Conversation, Live } from "../conversation.ts";
import type { Entry } from "../entries.ts";
import { bytes, day, dayKey } from "../format.ts";
import "./entry.ts";
import { icons } from "./icons.ts";
import { View } from "./view.ts";

/** Closer to the end than this many pixels counts as being there. */
const NEAR = 80;
/** A scroll so soon after a wheel, a touch or a key is the person's, in milliseconds. */
const BY_HAND = 600;
/** Entries shown at first, and more each time the person reaches the top. */
const PAGE = 150;
const HAND = ["wheel", "touchmove", "pointerdown", "keydown"] as const;

export class LogView extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    conversation: { attribute: false },
    entries: { attribute: false },
    live: { attribute: false },
    arriving: { attribute: false },
    stamp: { attribute: false },
    away: { state: true },
    shownCount: { state: true },
  };
  declare conversation: Conversation;
  declare entries: readonly Entry[];
  declare live: Live;
  declare arriving: readonly Arriving[];
  /** Changes with every change of the conversation. */
  declare stamp: number;
  declare away: boolean;
  declare shownCount: number;
  #observer: ResizeObserver | undefined;
  #watched: Element | undefined;
  #handled = Number.NEGATIVE_INFINITY;

  constructor() {
    super();
    this.away = false;
    this.shownCount = PAGE;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    for (const type of HAND) window.addEventListener(type, this.#byHand, { passive: true });
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    for (const type of HAND) window.removeEventListener(type, this.#byHand);
    this.#observer?.disconnect();
    this.#watched = undefined;
  }

  /** Shows the newest entry, and stays with it. */
  toLatest(): void {
    this.away = false;
    this.#stick();
  }

  protected override updated(): void {
    const inner = this.find<HTMLElement>(".inner");
    if (inner !== undefined && inner !== this.#watched) {
      // Pictures load and texts grow after the update: stay at the end all the same.
      this.#observer?.disconnect();
      this.#observer = new ResizeObserver(() => {
        this.#stick();
      });
      this.#observer.observe(inner);
      const scroll = this.find(".scroll");
      if (scroll !== undefined) this.#observer.observe(scroll);
      this.#watched = inner;
    }
    this.#stick();
  }

  protected override render(): unknown {
    const { words, conversation } = this;
    const empty = conversation.loaded && this.entries.length === 0;
    return html`
      <div
        class="scroll"
        tabindex="0"
        role="log"
        aria-live="off"
        aria-label=${words.conversation}
        @scroll=${this.#scrolled}
      >
        <div class="inner">
          ${empty ? this.#empty() : this.#list()} ${this.#coming()} ${this.#working()}
        </div>
      </div>
      ${
        this.away
          ? html`<button
              type="button"
              class="latest icon-only"
              aria-label=${words.latest}
              title=${words.latest}
              @click=${() => {
                this.toLatest();
              }}
            >
              ${icons.down}
            </button>`
          : nothing
      }
    `;
  }

  #empty(): TemplateResult {
    const { words, conversation } = this;
    return html`<div class="empty">
      <h2>${words.emptyTitle(conversation.agent.name)}</h2>
      <p>${words.emptyText}</p>
      <div class="starters">
        ${words.starters.map(
          (starter) =>
            html`<button
              type="button"
              @click=${() => this.dispatchEvent(new CustomEvent("starter", { detail: starter }))}
            >
              ${starter}
            </button>`,
        )}
      </div>
    </div>`;
  }

  #list(): TemplateResult {
    const now = Date.now();
    const entries = this.entries.slice(-this.shownCount);
    const { phase } = this.live.line;
    const online = phase === "ready";
    const live = online || phase === "elsewhere";
    let last = "";
    return html`${repeat(
      entries,
      ({ key }) => key,
      (entry) => {
        const today = dayKey(entry.at);
        const first = today !== last;
        last = today;
        return html`${
            first
              ? html`<p class="day">
                  <span>${day(entry.at, now, this.language, this.words)}</span>
                </p>`
              : nothing
          }<hm-entry
            .language=${this.language}
            .entry=${entry}
            .conversation=${this.conversation}
            .online=${online}
            .growing=${live && entry.type === "said" && this.live.growing.has(entry.id)}
            .uploaded=${
              entry.type === "mine" ? this.conversation.progressOf(entry.id)?.done : undefined
            }
          ></hm-entry>`;
      },
    )}`;
  }

  #coming(): unknown {
    return this.arriving.map(
      ({ id, filename, done, size }) =>
        html`<div class="arriving" data-id=${id}>
          <span>${this.words.receiving(filename)}</span>
          <progress
            max=${size}
            value=${done}
            aria-label=${this.words.receiving(filename)}
          ></progress>
          <span
            >${this.words.progress(bytes(done, this.language), bytes(size, this.language))}</span
          >
        </div>`,
    );
  }

  #working(): unknown {
    const { live, words, conversation } = this;
    if (!live.typing || live.growing.size > 0) return nothing;
    const told = words.working(conversation.agent.name);
    return html`<p class="working" role="status">
      <span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>
      <span class="hidden">${told}</span>
    </p>`;
  }

  #stick(): void {
    const scroll = this.find<HTMLElement>(".scroll");
    if (scroll !== undefined && !this.away) scroll.scrollTop = scroll.scrollHeight;
  }

  readonly #byHand = (event: Event): void => {
    // Keys in a field write, and a click on a button sends: neither scrolls.
    const target = event.target instanceof Element ? event.target : undefined;
    if (target === undefined || target.closest("textarea, input, button, dialog") !== null) return;
    this.#handled = performance.now();
  };

  readonly #scrolled = (event: Event): void => {
    const scroll = event.currentTarget as HTMLElement;
    const left = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
    // Only the person scrolls away; what merely grew below the view is followed.
    if (left <= NEAR) this.away = false;
    else if (performance.now() - this.#handled < BY_HAND) this.away = true;
    if (scroll.scrollTop < NEAR && this.shownCount < this.entries.length && this.away) {
      const before = scroll.scrollHeight;
      this.shownCount += PAGE;
      void this.updateComplete.then(() => {
        scroll.scrollTop += scroll.scrollHeight - before;
      });
    }
  };
}

declare global {
  interface HTMLElementTagNameMap {
    "hm-log": LogView;
  }
}

customElements.define("hm-log", LogView);
