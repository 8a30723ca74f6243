/** The whole app: agents on one side, the conversation on the other. */
import { html, nothing, type PropertyDeclarations, type TemplateResult } from "lit";
import { createRef, ref } from "lit/directives/ref.js";
import {
  loadAgents,
  loadChoices,
  pageStorage,
  saveAgents,
  saveChoices,
  type Agent,
  type Choices,
} from "../agents.ts";
import { Conversation, type Trouble } from "../conversation.ts";
import type { Entry } from "../entries.ts";
import { forgetAgent } from "../history.ts";
import { LANGUAGES, languageFor, type Language } from "../words/index.ts";
import "./agent-form.ts";
import type { ComposerView } from "./composer.ts";
import "./composer.ts";
import "./face.ts";
import { icons } from "./icons.ts";
import "./line.ts";
import "./log.ts";
import { View } from "./view.ts";

type Sheet = "menu" | "add" | "edit" | "clear" | "remove";

const WIDE = "(min-width: 56rem)";
const TROUBLE_SHOWN = 8_000;

export class AppView extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    agents: { state: true },
    choices: { state: true },
    conversation: { state: true },
    sheet: { state: true },
    trouble: { state: true },
    dropping: { state: true },
    picture: { state: true },
    wide: { state: true },
  };
  declare agents: readonly Agent[];
  declare choices: Choices;
  declare conversation: Conversation | undefined;
  declare sheet: Sheet | undefined;
  declare trouble: string;
  declare dropping: boolean;
  declare picture: { readonly address: string; readonly label: string } | undefined;
  declare wide: boolean;
  readonly #storage = pageStorage();
  readonly #composer = createRef<ComposerView>();
  readonly #dialog = createRef<HTMLDialogElement>();
  readonly #wide = matchMedia(WIDE);
  #spoken = "";
  #unread = 0;
  #troubleTimer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    super();
    this.agents = loadAgents(this.#storage);
    this.choices = loadChoices(this.#storage);
    this.trouble = "";
    this.dropping = false;
    this.wide = this.#wide.matches;
    this.#speak();
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#wide.addEventListener("change", this.#resized);
    document.addEventListener("visibilitychange", this.#seen);
    window.addEventListener("pagehide", this.#leaving);
    window.addEventListener("pageshow", this.#returned);
    window.addEventListener("focus", this.#seen);
    this.#open(this.agents.find(({ id }) => id === this.choices.current) ?? this.agents[0]);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#wide.removeEventListener("change", this.#resized);
    document.removeEventListener("visibilitychange", this.#seen);
    window.removeEventListener("pagehide", this.#leaving);
    window.removeEventListener("pageshow", this.#returned);
    window.removeEventListener("focus", this.#seen);
    this.conversation?.close();
  }

  // ---- what is seen ---------------------------------------------------------------------------

  protected override render(): unknown {
    const { words, conversation } = this;
    if (conversation === undefined) return html`${this.#welcome()}${this.#sheet()}`;
    const { agent, live } = conversation;
    return html`
      <div
        class="shell"
        @dragenter=${this.#dragged}
        @dragover=${this.#dragged}
        @dragleave=${this.#dragEnded}
        @drop=${this.#dropped}
        @enlarge=${(event: CustomEvent<AppView["picture"]>) => {
          this.#enlarge(event.detail);
        }}
      >
        ${this.wide ? html`<nav class="side" aria-label=${words.agents}>${this.#side()}</nav>` : nothing}
        <div class="main">
          <header class="top">
            ${
              this.wide
                ? nothing
                : html`<button
                    type="button"
                    class="icon-only plain"
                    aria-label=${words.menu}
                    title=${words.menu}
                    @click=${() => {
                      this.#show("menu");
                    }}
                  >
                    ${icons.menu}
                  </button>`
            }
            <hm-face
              .language=${this.language}
              .state=${live.avatar}
              .url=${live.avatarUrl}
            ></hm-face>
            <div class="who">
              <h1>${agent.name}</h1>
              <hm-line
                .language=${this.language}
                .line=${live.line}
                .avatar=${live.avatar}
              ></hm-line>
            </div>
          </header>
          <hm-line-banner
            .language=${this.language}
            .line=${live.line}
            @use=${() => conversation.use()}
            @edit=${() => {
              this.#show("edit");
            }}
          ></hm-line-banner>
          <hm-log
            .language=${this.language}
            .conversation=${conversation}
            .entries=${conversation.entries}
            .live=${live}
            .arriving=${conversation.arriving}
            .stamp=${performance.now()}
            @starter=${(event: CustomEvent<string>) => {
              this.#composer.value?.restore(event.detail);
              this.#composer.value?.focus();
            }}
          ></hm-log>
          <hm-composer
            ${ref(this.#composer)}
            .language=${this.language}
            .conversation=${conversation}
            .limits=${live.limits}
            @draft=${(event: CustomEvent<string>) => {
              this.#keepDraft(event.detail);
            }}
            @sent=${() => this.querySelector("hm-log")?.toLatest()}
          ></hm-composer>
        </div>
        ${this.dropping ? html`<div class="drop" aria-hidden="true">${words.dropHere}</div>` : nothing}
      </div>
      ${
        this.trouble === ""
          ? nothing
          : html`<div class="toast" role="alert">
              <span>${this.trouble}</span>
              <button
                type="button"
                class="quiet"
                aria-label=${words.dismiss}
                @click=${() => {
                  this.trouble = "";
                }}
              >
                ${icons.close}
              </button>
            </div>`
      }
      <p class="hidden" aria-live="polite">${this.#spoken}</p>
      ${this.#sheet()}
    `;
  }

  #welcome(): TemplateResult {
    const { words } = this;
    return html`<main class="welcome">
      <hm-face .language=${this.language} .state=${"idle"} .url=${""}></hm-face>
      <h1>${words.welcomeTitle}</h1>
      <p>${words.welcomeText}</p>
      <hm-agent-form
        .language=${this.language}
        .suggested=${ownDoor()}
        @agent=${this.#agentGiven}
      ></hm-agent-form>
      ${this.#settings()}
    </main>`;
  }

  #side(): TemplateResult {
    const { words, conversation } = this;
    return html`
      <h2>${words.agents}</h2>
      <ul class="agents">
        ${this.agents.map(
          (agent) =>
            html`<li>
              <button
                type="button"
                class="agent"
                aria-current=${agent.id === conversation?.agent.id ? "true" : "false"}
                @click=${() => {
                  this.#close();
                  if (agent.id !== this.conversation?.agent.id) this.#open(agent);
                }}
              >
                <span class="letter" aria-hidden="true">${[...agent.name][0] ?? "H"}</span>
                <span class="about">
                  <span class="name">${agent.name}</span>
                  <span class="detail">${hostOf(agent.url)}</span>
                </span>
              </button>
            </li>`,
        )}
      </ul>
      <button
        type="button"
        class="wide plain"
        @click=${() => {
          this.#show("add");
        }}
      >
        ${icons.plus} ${words.addAgent}
      </button>
      <div class="spacer"></div>
      <div class="tasks">
        <button
          type="button"
          class="wide plain"
          @click=${() => {
            this.#show("edit");
          }}
        >
          ${icons.edit} ${words.editAgent}
        </button>
        <button
          type="button"
          class="wide plain"
          @click=${() => {
            this.#show("clear");
          }}
        >
          ${icons.trash} ${words.clear}
        </button>
      </div>
      ${this.#settings()}
    `;
  }

  #settings(): TemplateResult {
    const { words, choices } = this;
    return html`<div class="settings">
      <label>
        <span>${words.languageLabel}</span>
        <select
          @change=${(event: Event) => {
            this.#choose({ language: (event.target as HTMLSelectElement).value as Language });
          }}
        >
          ${Object.entries(LANGUAGES).map(
            ([code, { language }]) =>
              html`<option value=${code} lang=${code} ?selected=${code === this.language}>
                ${language}
              </option>`,
          )}
        </select>
      </label>
      <label>
        <span>${words.theme}</span>
        <select
          @change=${(event: Event) => {
            this.#choose({ theme: (event.target as HTMLSelectElement).value as Choices["theme"] });
          }}
        >
          ${Object.entries(words.themes).map(
            ([code, label]) =>
              html`<option value=${code} ?selected=${code === choices.theme}>${label}</option>`,
          )}
        </select>
      </label>
      <label>
        <span>${words.userName}</span>
        <input
          type="text"
          maxlength="120"
          autocomplete="name"
          .value=${choices.userName}
          placeholder=${words.userNameHint}
          @change=${(event: Event) => {
            this.#choose({ userName: (event.target as HTMLInputElement).value.trim() });
          }}
        />
      </label>
    </div>`;
  }

  #sheet(): TemplateResult {
    const { words, sheet } = this;
    const titles: Record<Sheet, string> = {
      menu: words.menu,
      add: words.addAgent,
      edit: words.editAgent,
      clear: words.clear,
      remove: words.removeAgent,
    };
    return html`<dialog
        ${ref(this.#dialog)}
        class="sheet ${sheet ?? ""}"
        aria-labelledby="sheet-title"
        @close=${() => {
          this.sheet = undefined;
        }}
        @click=${(event: Event) => {
          // A click on the dark around it: that is the dialog itself, not its content.
          if (event.target === event.currentTarget) this.#close();
        }}
      >
        ${
          sheet === undefined
            ? nothing
            : html`<div class="sheet-body">
                <header>
                  <h2 id="sheet-title">${titles[sheet]}</h2>
                  <button
                    type="button"
                    class="icon-only plain"
                    aria-label=${words.close}
                    @click=${() => {
                      this.#close();
                    }}
                  >
                    ${icons.close}
                  </button>
                </header>
                ${this.#sheetContent(sheet)}
              </div>`
        }
      </dialog>
      <dialog
        class="picture-sheet"
        aria-label=${this.picture?.label ?? words.open}
        @close=${() => {
          this.picture = undefined;
        }}
        @click=${(event: Event) => {
          (event.currentTarget as HTMLDialogElement).close();
        }}
      >
        ${
          this.picture === undefined
            ? nothing
            : html`<button type="button" class="icon-only" aria-label=${words.close}>
                  ${icons.close}
                </button>
                <img src=${this.picture.address} alt=${this.picture.label} />`
        }
      </dialog>`;
  }

  #sheetContent(sheet: Sheet): TemplateResult {
    const { words } = this;
    switch (sheet) {
      case "menu":
        return html`<div class="side">${this.#side()}</div>`;
      case "add":
        return html`<hm-agent-form
          .language=${this.language}
          .suggested=${ownDoor()}
          @agent=${this.#agentGiven}
        ></hm-agent-form>`;
      case "edit":
        return html`<hm-agent-form
            .language=${this.language}
            .agent=${this.conversation?.agent}
            @agent=${this.#agentGiven}
          ></hm-agent-form>
          <button
            type="button"
            class="wide danger plain"
            @click=${() => {
              this.#show("remove");
            }}
          >
            ${icons.trash} ${words.removeAgent}
          </button>`;
      case "clear":
      case "remove":
        return html`<p>${sheet === "clear" ? words.clearSure : words.removeSure}</p>
          <div class="row end">
            <button
              type="button"
              class="plain"
              @click=${() => {
                this.#close();
              }}
            >
              ${words.cancel}
            </button>
            <button
              type="button"
              class="danger"
              @click=${sheet === "clear" ? this.#clear : this.#remove}
            >
              ${sheet === "clear" ? words.clear : words.removeAgent}
            </button>
          </div>`;
    }
  }

  // ---- agents ---------------------------------------------------------------------------------

  #open(agent: Agent | undefined): void {
    this.conversation?.close();
    this.conversation = undefined;
    this.trouble = "";
    if (agent === undefined) return;
    this.#choose({ current: agent.id });
    const conversation = new Conversation({
      agent,
      userName: this.choices.userName,
      changed: () => {
        if (this.conversation === conversation) this.requestUpdate();
      },
      trouble: (trouble) => {
        this.#troubled(trouble);
      },
      said: (entry) => {
        this.#said(entry);
      },
    });
    this.conversation = conversation;
    void conversation.start();
    void this.updateComplete.then(() => {
      this.#composer.value?.restore(this.#storage.getItem(draftKey(agent.id)) ?? "");
      if (this.wide) this.#composer.value?.focus();
    });
  }

  readonly #agentGiven = (event: CustomEvent<Agent>): void => {
    const agent = event.detail;
    const known = this.agents.some(({ id }) => id === agent.id);
    this.agents = known
      ? this.agents.map((old) => (old.id === agent.id ? agent : old))
      : [...this.agents, agent];
    if (!saveAgents(this.#storage, this.agents)) {
      this.#troubled({ code: "storage_closed", message: "" });
    }
    // The browser may clear what it was not asked to keep.
    void navigator.storage?.persist?.().catch(() => false);
    this.#close();
    this.#open(agent);
  };

  readonly #remove = (): void => {
    const gone = this.conversation?.agent;
    if (gone === undefined) return;
    this.#close();
    this.agents = this.agents.filter(({ id }) => id !== gone.id);
    saveAgents(this.#storage, this.agents);
    this.#storage.removeItem(draftKey(gone.id));
    this.#open(this.agents[0]);
    void forgetAgent(gone.id);
  };

  readonly #clear = (): void => {
    this.#close();
    void this.conversation?.clear();
  };

  #keepDraft(text: string): void {
    const id = this.conversation?.agent.id;
    if (id === undefined) return;
    try {
      if (text === "") this.#storage.removeItem(draftKey(id));
      else this.#storage.setItem(draftKey(id), text);
    } catch {
      // A draft that is not kept is still in the field.
    }
  }

  // ---- choices --------------------------------------------------------------------------------

  #choose(choice: Partial<Choices>): void {
    this.choices = { ...this.choices, ...choice };
    saveChoices(this.#storage, this.choices);
    this.#speak();
  }

  #speak(): void {
    const { language, theme } = this.choices;
    this.language = language === "auto" ? languageFor(navigator.languages) : language;
    const root = document.documentElement;
    root.lang = this.language;
    if (theme === "auto") delete root.dataset["theme"];
    else root.dataset["theme"] = theme;
    this.#title();
  }

  #title(): void {
    const unread = this.#unread === 0 ? "" : this.words.unread(this.#unread);
    document.title = unread + (this.conversation?.agent.name ?? this.words.appName);
  }

  // ---- what happens ---------------------------------------------------------------------------

  #said(entry: Entry): void {
    const { words } = this;
    if (entry.type === "said") {
      this.#spoken = `${words.agentSays(this.conversation?.agent.name ?? "")}: ${entry.text.slice(0, 400)}`;
    } else if (entry.type === "asked") {
      const title = words.cardKind[entry.card.kind] ?? "";
      this.#spoken = `${title} ${entry.card.command ?? entry.card.text}`;
    } else if (entry.type === "shown") {
      this.#spoken = `${words.kind[entry.kind] ?? ""} ${entry.filename}`;
    }
    if (document.visibilityState === "hidden") this.#unread += 1;
    this.#title();
    this.requestUpdate();
  }

  #troubled({ code, message }: Trouble): void {
    const { words } = this;
    const known: Record<string, string> = {
      storage_closed: words.storageClosed,
      not_taken: words.notTaken,
    };
    this.trouble = known[code] ?? words.failure[code] ?? (message || words.unknownError);
    clearTimeout(this.#troubleTimer);
    this.#troubleTimer = setTimeout(() => {
      this.trouble = "";
    }, TROUBLE_SHOWN);
  }

  readonly #seen = (): void => {
    if (document.visibilityState === "hidden") {
      this.conversation?.hidden();
      return;
    }
    this.#unread = 0;
    this.#title();
    this.conversation?.seen();
  };

  readonly #leaving = (): void => {
    this.conversation?.close();
  };

  readonly #returned = (event: PageTransitionEvent): void => {
    // Back from the browser's cache: the conversation was closed on the way out.
    if (event.persisted) this.#open(this.conversation?.agent);
  };

  readonly #resized = (): void => {
    this.wide = this.#wide.matches;
    if (this.wide && this.sheet === "menu") this.#close();
  };

  #show(sheet: Sheet): void {
    this.sheet = sheet;
    void this.updateComplete.then(() => {
      const dialog = this.#dialog.value;
      if (dialog?.open === false) dialog.showModal();
    });
  }

  #close(): void {
    this.#dialog.value?.close();
    this.sheet = undefined;
  }

  #enlarge(picture: AppView["picture"]): void {
    this.picture = picture;
    void this.updateComplete.then(() => {
      this.find<HTMLDialogElement>("dialog.picture-sheet")?.showModal();
    });
  }

  // ---- dropped files --------------------------------------------------------------------------

  readonly #dragged = (event: DragEvent): void => {
    if (event.dataTransfer?.types.includes("Files") !== true) return;
    event.preventDefault();
    this.dropping = true;
  };

  readonly #dragEnded = (event: DragEvent): void => {
    const into = event.relatedTarget;
    if (!(into instanceof Node) || !this.contains(into)) this.dropping = false;
  };

  readonly #dropped = (event: DragEvent): void => {
    this.dropping = false;
    if (event.dataTransfer === null || event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    this.#composer.value?.attach([...event.dataTransfer.files]);
  };
}

/** The door that serves this page, if one does: where most people's agent is. */
function ownDoor(): string {
  if (!location.pathname.startsWith("/chat/")) return "";
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
}

function draftKey(agentId: string): string {
  return `hermes-chat:draft:${agentId}`;
}

function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
}

customElements.define("hm-app", AppView);
