/** `<hermes-panel>`: the agent beside a document. */
import {
  LitElement,
  html,
  nothing,
  unsafeCSS,
  type PropertyDeclarations,
  type PropertyValues,
  type TemplateResult,
} from "lit";
import { repeat } from "lit/directives/repeat.js";
import type { ApprovalChoice } from "@hermes-mobile/client";
import markdownStyles from "../markdown/markdown.css?inline";
import { copyText } from "../markdown/view.ts";
import { contextOf, shortened, type Given, type PageContext } from "./context.ts";
import { icons } from "./icons.ts";
import { PanelModel } from "./model.ts";
import styles from "./panel.css?inline";
import { PageSelection } from "./selection.ts";
import {
  isAsking,
  isOver,
  isRefused,
  type ApprovalPart,
  type Part,
  type Problem,
  type ToolPart,
  type Turn,
} from "./transcript.ts";
import "./text.ts";
import { wordsFor, type Words } from "./words.ts";

/** How close to the end counts as being there, in pixels. */
const NEAR = 60;
/** A tool that took less is not timed: "0 s" tells nothing. In seconds. */
const SHORTEST_SHOWN = 0.05;
const DEFAULT_WORKSPACE = "default";

/**
 * Attributes: `document-id` (needed), `workspace-id`, `theme` (`light`, `dark`; else the system's),
 * `lang` (else the page's), `heading`.
 *
 * Properties: `pageContext`, `selectedBlockId` and `selectedText`, each a value or a function that is
 * asked when a message is sent; without `selectedText` the page's own selection is taken along.
 *
 * Events (bubbling, composed): `hermes-run-started`, `hermes-run-ended`.
 */
export class HermesPanel extends LitElement {
  static override styles = [unsafeCSS(markdownStyles), unsafeCSS(styles)];
  static override shadowRootOptions: ShadowRootInit = {
    ...LitElement.shadowRootOptions,
    delegatesFocus: true,
  };
  static override properties: PropertyDeclarations = {
    documentId: { attribute: "document-id" },
    workspaceId: { attribute: "workspace-id" },
    theme: { reflect: true },
    language: { attribute: "lang" },
    heading: {},
    open_: { state: true },
    draft: { state: true },
    selected: { state: true },
    spoken: { state: true },
    copied: { state: true },
  };

  declare documentId: string;
  declare workspaceId: string;
  declare theme: string;
  declare language: string;
  declare heading: string;
  /** What the page shows, or a function that tells it. Default: the page's title and headings. */
  declare pageContext: Given<PageContext | undefined>;
  /** The block the person is in, or a function that tells it. */
  declare selectedBlockId: Given<string | null | undefined>;
  /** The text to take along, or a function that tells it. Default: what is selected in the page. */
  declare selectedText: Given<string | null | undefined>;
  // Declared and not set: what a page put there before this script ran must stay.

  declare open_: boolean;
  declare draft: string;
  declare selected: string;
  declare spoken: string;
  declare copied: boolean;
  #model: PanelModel | undefined;
  #words: Words = wordsFor(["en"]);
  #follow = true;
  #wasBusy = false;
  #hadFocus = false;
  /** The card that a screen reader was told of. */
  #askedFor: string | undefined;
  #resize: ResizeObserver | undefined;
  /** Of the conversation, in pixels: lines of the field break elsewhere when it changes. */
  #width = 0;
  readonly #selection = new PageSelection(this, (text) => {
    this.selected = text;
  });

  constructor() {
    super();
    this.documentId = "";
    this.workspaceId = "";
    this.theme = "";
    this.language = "";
    this.heading = "";
    this.open_ = false;
    this.draft = "";
    this.selected = "";
    this.spoken = "";
    this.copied = false;
  }

  /** Writes `text` into the field, for the person to send. */
  suggest(text: string): void {
    this.draft = text;
    void this.updateComplete.then(() => {
      this.#grow();
      this.#field?.focus();
    });
  }

  /** Asks at once, as if the person had sent it. */
  async ask(text: string): Promise<void> {
    if (text.trim() === "" || this.#model === undefined || this.#model.busy) return;
    this.#follow = true;
    const { pageContext, selectedBlockId, selectedText } = this;
    const context = contextOf({
      ...{ pageContext, selectedBlockId, selectedText },
      selection: this.#selection.text,
      page: document,
      panel: this,
    });
    this.#selection.drop();
    await this.#model.send(text.trim(), context);
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#selection.start();
    document.addEventListener("pointerdown", this.#pressed);
    if (this.hasUpdated) this.#begin();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#selection.stop();
    document.removeEventListener("pointerdown", this.#pressed);
    this.#resize?.disconnect();
    this.#resize = undefined;
    this.#model?.stop();
    this.#model = undefined;
  }

  protected override willUpdate(changed: PropertyValues<this>): void {
    this.#hadFocus = this.shadowRoot?.activeElement != null;
    this.#words = wordsFor(
      [this.language, document.documentElement.lang, ...navigator.languages].filter(
        (tag) => tag !== "",
      ),
    );
    if (changed.has("documentId") || changed.has("workspaceId")) this.#begin();
    const model = this.#model;
    if (model === undefined) return;
    const card = openCard(model.turns.at(-1));
    if (card?.id !== this.#askedFor) {
      this.#askedFor = card?.id;
      if (card !== undefined) this.spoken = `${this.#words.approval} ${card.command}`;
    }
    if (model.busy === this.#wasBusy) return;
    this.#wasBusy = model.busy;
    const last = model.turns.at(-1);
    if (model.busy) this.spoken = this.#words.working;
    else if (last?.state === "completed") this.spoken = `${this.#words.done}. ${lastText(last)}`;
    else this.spoken = "";
  }

  protected override updated(): void {
    const inner = this.renderRoot.querySelector(".turns");
    if (inner !== null && this.#resize === undefined) {
      this.#resize = new ResizeObserver(() => {
        this.#stick();
        if (inner.clientWidth === this.#width) return;
        this.#width = inner.clientWidth;
        // Not in here: what observes a size must not change it.
        requestAnimationFrame(() => {
          this.#grow();
        });
      });
      this.#resize.observe(inner);
      // A panel that becomes lower must not push the newest turn, or an open question, out of sight.
      if (inner.parentElement !== null) this.#resize.observe(inner.parentElement);
    }
    this.#stick();
    // A button that went with its press must not take the keyboard's place in the page with it.
    if (this.#hadFocus && this.shadowRoot?.activeElement === null) {
      this.renderRoot.querySelector<HTMLElement>(".log")?.focus({ preventScroll: true });
    }
  }

  // ---- what is seen ---------------------------------------------------------------------------

  protected override render(): unknown {
    const words = this.#words;
    const model = this.#model;
    // It stands in the direction of its own words; what people and agents write has one of its own.
    return html`<section
      class="panel"
      lang=${words.tag}
      dir="ltr"
      aria-label=${this.heading || words.panel}
    >
      ${this.#head(model)}
      ${
        model === undefined
          ? html`<p class="problem" role="alert">
              ${icons.warning}<span>${words.noDocument}</span>
            </p>`
          : html`
              <div
                class="log"
                role="log"
                aria-live="off"
                aria-label=${words.conversation}
                tabindex="0"
                @scroll=${this.#scrolled}
              >
                <div class="turns">
                  ${
                    model.loading && model.turns.length === 0
                      ? html`<p class="quiet" role="status">${words.loading}</p>`
                      : model.turns.length === 0
                        ? this.#empty()
                        : repeat(
                            model.turns,
                            ({ key }) => key,
                            (turn, index) => this.#turn(turn, index === model.turns.length - 1),
                          )
                  }
                </div>
              </div>
              ${
                model.lost
                  ? html`<p class="bar" role="status"><span class="spin"></span>${words.lost}</p>`
                  : nothing
              }
              ${
                model.problem === undefined
                  ? nothing
                  : html`<div class="foot-problem">
                      ${this.#problem(model.problem)}
                      <div class="row">
                        <button type="button" class="small" @click=${() => void model.start()}>
                          ${words.again}
                        </button>
                        <button
                          type="button"
                          class="small plain"
                          @click=${() => {
                            model.dismiss();
                          }}
                        >
                          ${words.close}
                        </button>
                      </div>
                    </div>`
              }
              ${this.#write(model)}
            `
      }
      <p class="hidden" role="status">${this.spoken}</p>
    </section>`;
  }

  #head(model: PanelModel | undefined): TemplateResult {
    const words = this.#words;
    const current = model?.sessions.find(({ sessionId }) => sessionId === model.sessionId);
    const title =
      current === undefined ? words.newSession : current.title || current.preview || words.untitled;
    return html`<header>
      <span class="mark" data-busy=${model?.busy === true ? "true" : "false"} aria-hidden="true"
        >${icons.face}</span
      >
      <div class="sessions">
        <button
          type="button"
          class="chooser"
          aria-expanded=${this.open_ ? "true" : "false"}
          aria-controls="list"
          ?disabled=${model === undefined}
          @click=${this.#toggle}
        >
          <span class="titles">
            <span class="heading">${this.heading || words.panel}</span>
            <span class="current" dir="auto">${title}</span>
          </span>
          ${icons.chevron}
        </button>
        <div id="list" class="list" ?hidden=${!this.open_} @keydown=${this.#listKeyed}>
          <p class="list-title">${words.sessions}</p>
          ${
            model === undefined || model.sessions.length === 0
              ? html`<p class="quiet">${words.noSessions}</p>`
              : html`<ul>
                  ${model.sessions.map(
                    (session) =>
                      html`<li>
                        <button
                          type="button"
                          aria-current=${session.sessionId === model.sessionId ? "true" : "false"}
                          @click=${() => {
                            this.#choose(() => void model.openSession(session.sessionId));
                          }}
                        >
                          <span class="titles">
                            <span dir="auto"
                              >${session.title || session.preview || words.untitled}</span
                            >
                            <span class="detail">
                              ${this.#when(session.updatedAt)}
                              ${
                                session.messageCount === null
                                  ? nothing
                                  : html`· ${words.messages(session.messageCount)}`
                              }
                            </span>
                          </span>
                        </button>
                      </li>`,
                  )}
                </ul>`
          }
        </div>
      </div>
      <button
        type="button"
        class="icon plain"
        aria-label=${words.newSession}
        title=${words.newSession}
        ?disabled=${model === undefined || (model.sessionId === undefined && model.turns.length === 0)}
        @click=${() => {
          this.#choose(() => model?.newSession());
        }}
      >
        ${icons.plus}
      </button>
    </header>`;
  }

  #empty(): TemplateResult {
    const words = this.#words;
    return html`<div class="empty">
      <p class="title">${words.emptyTitle}</p>
      <p>${words.emptyText}</p>
    </div>`;
  }

  #turn(turn: Turn, last: boolean): TemplateResult {
    const words = this.#words;
    const running = last && !isOver(turn);
    return html`<div class="turn" data-state=${turn.state}>
      ${
        turn.asked === ""
          ? nothing
          : html`<article class="asked" aria-label=${words.you}>
              <p class="words" dir="auto">${turn.asked}</p>
              ${
                turn.selection === undefined
                  ? nothing
                  : html`<p class="taken" dir="auto" title=${turn.selection}>
                      ${words.withSelection(shortened(turn.selection, 90))}
                    </p>`
              }
            </article>`
      }
      <article class="answer" aria-label=${words.agent} aria-busy=${running ? "true" : "false"}>
        ${turn.parts.map((part, index) =>
          this.#part(part, turn, running && index === turn.parts.length - 1),
        )}
        ${running ? this.#activity(turn) : this.#end(turn)}
      </article>
    </div>`;
  }

  #part(part: Part, turn: Turn, growing: boolean): TemplateResult {
    switch (part.kind) {
      case "text":
        return html`<hermes-panel-text
          class="text"
          .text=${part.text}
          .growing=${growing}
          .words=${this.#words}
        ></hermes-panel-text>`;
      case "tool":
        return this.#tool(part, turn);
      case "approval":
        return this.#approval(part);
      case "note":
        return html`<p class="quiet">${this.#words[part.note]}</p>`;
    }
  }

  #tool(part: ToolPart, turn: Turn): TemplateResult {
    const words = this.#words;
    const tell = {
      running: isAsking(part, turn) ? words.toolAsking : words.toolRunning,
      done: words.toolDone,
      failed: isRefused(part, turn) ? words.toolRefused : words.toolFailed,
      stopped: words.toolStopped,
    }[part.state];
    const label = tell(part.tool);
    const duration =
      part.duration === null || part.duration < SHORTEST_SHOWN
        ? ""
        : words.seconds(
            new Intl.NumberFormat(this.#language, { maximumFractionDigits: 1 }).format(
              part.duration,
            ),
          );
    const shown = part.state === "failed" && isRefused(part, turn) ? "refused" : part.state;
    return html`<div class="tool ${shown}">
      <span class="sign" aria-hidden="true"
        >${
          part.state === "running"
            ? html`<span class="spin"></span>`
            : part.state === "done"
              ? icons.check
              : icons.cross
        }</span
      >
      <span class="tool-name">${label}</span>
      ${part.preview === "" ? nothing : html`<code dir="ltr" title=${part.preview}>${part.preview}</code>`}
      ${duration === "" ? nothing : html`<span class="detail">${duration}</span>`}
    </div>`;
  }

  #approval(part: ApprovalPart): TemplateResult {
    const words = this.#words;
    const open = part.state === "open";
    return html`<div class="approval ${part.state}" role="group" aria-label=${words.approval}>
      <p class="title">${icons.terminal}<span>${words.approval}</span></p>
      ${
        part.command === ""
          ? nothing
          : html`<pre
              tabindex="0"
              dir="ltr"
              aria-label=${words.command}
            ><code>${part.command}</code></pre>`
      }
      ${part.description === "" ? nothing : html`<p class="detail">${part.description}</p>`}
      ${
        open
          ? html`<div class="row">
              ${part.choices.map(
                (choice) =>
                  html`<button
                    type="button"
                    class=${choice === "once" ? "primary" : choice === "deny" ? "danger" : ""}
                    @click=${() => void this.#model?.approve(part.id, choice as ApprovalChoice)}
                  >
                    ${words.choice[choice] ?? choice}
                  </button>`,
              )}
            </div>`
          : html`<p
              class="outcome ${part.choice === "deny" || part.state === "expired" ? "no" : "yes"}"
              role="status"
            >
              ${part.state === "sending" ? html`<span class="spin"></span>` : nothing}
              ${this.#outcome(part)}
            </p>`
      }
    </div>`;
  }

  #outcome(part: ApprovalPart): string {
    const words = this.#words;
    if (part.state === "sending") return words.answering;
    if (part.state === "expired") return words.approvalExpired;
    if (part.state === "closed") return words.approvalClosed;
    return words.outcome[part.choice ?? ""] ?? words.answeredElsewhere;
  }

  #activity(turn: Turn): unknown {
    const words = this.#words;
    const last = turn.parts.at(-1);
    if (turn.state === "stopping") {
      return html`<p class="quiet"><span class="spin"></span>${words.stopping}</p>`;
    }
    if (last !== undefined && last.kind !== "note") return nothing;
    return html`<p class="quiet">
      <span class="spin"></span>${turn.state === "starting" ? words.starting : words.working}
    </p>`;
  }

  #end(turn: Turn): unknown {
    const words = this.#words;
    if (turn.problem !== undefined) return this.#problem(turn.problem, turn);
    if (turn.state === "cancelled") return html`<p class="quiet">${words.cancelled}</p>`;
    if (turn.state === "interrupted") return html`<p class="quiet">${words.interrupted}</p>`;
    return nothing;
  }

  #problem(problem: Problem, turn?: Turn): TemplateResult {
    const words = this.#words;
    const told =
      problem.code === "run_failed"
        ? words.failed
        : (words.error[problem.code] ?? (problem.message || words.unknownError));
    return html`<div class="problem" role="alert">
      ${icons.warning}
      <div>
        <p>${told}</p>
        ${
          problem.traceId === undefined
            ? nothing
            : html`<p class="trace">
                ${words.trace}: <code>${problem.traceId}</code>
                <button
                  type="button"
                  class="link"
                  @click=${async () => {
                    this.copied = await copyText(problem.traceId ?? "");
                  }}
                >
                  ${this.copied ? words.copied : words.copy}
                </button>
              </p>`
        }
        ${
          turn === undefined || turn !== this.#model?.turns.at(-1)
            ? nothing
            : html`<button
                type="button"
                class="small"
                @click=${async () => {
                  if (this.#model !== undefined && !(await this.#model.resume()))
                    await this.ask(turn.asked);
                }}
              >
                ${words.again}
              </button>`
        }
      </div>
    </div>`;
  }

  #write(model: PanelModel): TemplateResult {
    const words = this.#words;
    const own = this.selectedText === undefined ? this.selected : "";
    return html`<form
      class="write"
      @submit=${this.#submit}
      @keydown=${keptInside}
      @keypress=${keptInside}
      @keyup=${keptInside}
    >
      ${
        own === ""
          ? nothing
          : html`<p class="selection">
              <span><b>${words.selection}:</b> <bdi>${shortened(own, 160)}</bdi></span>
              <button
                type="button"
                class="icon plain tiny"
                aria-label=${words.dropSelection}
                title=${words.dropSelection}
                @click=${() => {
                  this.#selection.drop();
                  this.#field?.focus();
                }}
              >
                ${icons.cross}
              </button>
            </p>`
      }
      <textarea
        rows="1"
        dir="auto"
        aria-label=${words.messageLabel}
        placeholder=${words.message}
        .value=${this.draft}
        @input=${(event: Event) => {
          this.draft = (event.target as HTMLTextAreaElement).value;
          this.#grow();
        }}
        @keydown=${this.#keyed}
      ></textarea>
      <div class="controls">
        ${
          model.models.length === 0
            ? html`<span></span>`
            : html`<select
                aria-label=${words.model}
                title=${words.model}
                @change=${(event: Event) => {
                  model.model = (event.target as HTMLSelectElement).value;
                }}
              >
                ${model.models.map(({ id, label }) => {
                  const standard = id === model.defaultModel;
                  return html`<option
                    value=${standard ? "" : id}
                    ?selected=${standard ? model.model === "" : model.model === id}
                  >
                    ${standard ? words.defaultModel(label) : label}
                  </option>`;
                })}
              </select>`
        }
        ${
          model.busy
            ? html`<button
                type="button"
                class="stop"
                aria-disabled=${model.stopping ? "true" : "false"}
                @click=${() => {
                  if (!model.stopping) void model.abort();
                }}
              >
                ${icons.stop}${model.stopping ? words.stopping : words.stop}
              </button>`
            : html`<button type="submit" class="primary" ?disabled=${this.draft.trim() === ""}>
                ${icons.send}${words.send}
              </button>`
        }
      </div>
    </form>`;
  }

  // ---- what is done ---------------------------------------------------------------------------

  #begin(): void {
    this.#model?.stop();
    this.#model = undefined;
    if (this.documentId === "" || !this.isConnected) return;
    const model: PanelModel = new PanelModel({
      documentId: this.documentId,
      workspaceId: this.workspaceId || DEFAULT_WORKSPACE,
      changed: () => {
        if (this.#model === model) this.requestUpdate();
      },
      told: (event, detail) => {
        this.dispatchEvent(new CustomEvent(event, { bubbles: true, composed: true, detail }));
      },
    });
    this.#model = model;
    this.#wasBusy = false;
    void model.start();
  }

  get #field(): HTMLTextAreaElement | null {
    return this.renderRoot.querySelector("textarea");
  }

  /** For numbers and dates. A page's `lang` may be no language tag (`en_US`), which `Intl` refuses. */
  get #language(): string | undefined {
    for (const tag of [this.language, document.documentElement.lang]) {
      try {
        if (tag !== "") return Intl.getCanonicalLocales(tag.replaceAll("_", "-"))[0];
      } catch {
        // The next one, or the browser's own.
      }
    }
    return undefined;
  }

  #when(seconds: number | null): string {
    if (seconds === null) return "";
    const options = { dateStyle: "medium", timeStyle: "short" } as const;
    return new Intl.DateTimeFormat(this.#language, options).format(seconds * 1000);
  }

  readonly #submit = (event: Event): void => {
    event.preventDefault();
    this.#send();
  };

  #send(): void {
    const text = this.draft.trim();
    if (text === "" || this.#model === undefined || this.#model.busy) return;
    this.draft = "";
    void this.ask(text);
    void this.updateComplete.then(() => {
      this.#grow();
      this.#field?.focus();
    });
  }

  readonly #keyed = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229)
      return;
    event.preventDefault();
    this.#send();
  };

  #grow(): void {
    const field = this.#field;
    if (field === null) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight}px`;
  }

  readonly #toggle = async (): Promise<void> => {
    this.open_ = !this.open_;
    if (!this.open_) return;
    void this.#model?.refreshSessions();
    await this.updateComplete;
    const list = this.renderRoot.querySelector(".list");
    const first =
      list?.querySelector<HTMLElement>('[aria-current="true"]') ??
      list?.querySelector<HTMLElement>("button");
    first?.focus();
  };

  /** Runs what was chosen in the list and puts the focus where one goes on. */
  #choose(action: () => void): void {
    this.open_ = false;
    this.#follow = true;
    action();
    this.#field?.focus();
  }

  readonly #listKeyed = (event: KeyboardEvent): void => {
    const list = event.currentTarget as HTMLElement;
    const buttons = [...list.querySelectorAll("button")];
    const at = buttons.indexOf((this.renderRoot as ShadowRoot).activeElement as HTMLButtonElement);
    if (event.key === "Escape") {
      event.stopPropagation();
      this.open_ = false;
      this.renderRoot.querySelector<HTMLElement>(".chooser")?.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : buttons.length - 1;
      buttons[(at + step) % buttons.length]?.focus();
    }
  };

  /** A press elsewhere closes the list. */
  readonly #pressed = (event: Event): void => {
    if (!this.open_) return;
    const sessions = this.renderRoot.querySelector(".sessions");
    if (sessions !== null && !event.composedPath().includes(sessions)) this.open_ = false;
  };

  readonly #scrolled = (event: Event): void => {
    const log = event.currentTarget as HTMLElement;
    this.#follow = log.scrollHeight - log.scrollTop - log.clientHeight <= NEAR;
  };

  #stick(): void {
    const log = this.renderRoot.querySelector(".log");
    if (log !== null && this.#follow) log.scrollTop = log.scrollHeight;
  }
}

/**
 * Outside, a key that is pressed here seems to be pressed on the element and not in a field: a page
 * with shortcuts of one key would take the person's letters for these.
 */
function keptInside(event: KeyboardEvent): void {
  const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
  // A dialog around the panel closes with Escape, and keeps the focus inside with Tab.
  if (plain && event.key !== "Escape" && event.key !== "Tab") event.stopPropagation();
}

/** The card that waits for the person. */
function openCard(turn: Turn | undefined): ApprovalPart | undefined {
  return turn?.parts.find(
    (part): part is ApprovalPart => part.kind === "approval" && part.state === "open",
  );
}

function lastText(turn: Turn): string {
  const part = turn.parts.findLast((one) => one.kind === "text");
  return part === undefined ? "" : shortened(part.text, 300);
}
