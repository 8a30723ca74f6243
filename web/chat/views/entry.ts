/** One entry of the conversation. */
import {
  html,
  nothing,
  type PropertyDeclarations,
  type PropertyValues,
  type TemplateResult,
} from "lit";
import { MarkdownView, copyText } from "../../markdown/view.ts";
import type { Conversation } from "../conversation.ts";
import type { Entry, Mine, Said } from "../entries.ts";
import { bytes, clock } from "../format.ts";
import { icons } from "./icons.ts";
import "./card.ts";
import "./media.ts";
import { View } from "./view.ts";

export class EntryView extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    entry: { attribute: false },
    conversation: { attribute: false },
    growing: { attribute: false },
    uploaded: { attribute: false },
    online: { attribute: false },
    copied: { state: true },
  };
  declare entry: Entry;
  declare conversation: Conversation;
  /** This text grows right now. */
  declare growing: boolean;
  /** Bytes of this file that have left. */
  declare uploaded: number | undefined;
  declare online: boolean;
  declare copied: boolean;
  #markdown: MarkdownView | undefined;

  protected override updated(changed: PropertyValues<this>): void {
    const { entry } = this;
    this.className = `entry ${entry.type}`;
    if (entry.type !== "said") return;
    const host = this.find<HTMLElement>(".markdown");
    if (host === undefined) return;
    this.#markdown ??= new MarkdownView(host, this.words);
    this.#markdown.words = this.words;
    if (changed.has("entry")) this.#markdown.update(entry.text, entry.final);
  }

  protected override render(): unknown {
    const { entry } = this;
    switch (entry.type) {
      case "mine":
        return this.#mine(entry);
      case "said":
        return this.#said(entry);
      case "shown":
        return html`<article aria-label=${this.words.agentSays(this.conversation.agent.name)}>
          <hm-media .language=${this.language} .file=${entry}></hm-media>
          ${this.#foot()}
        </article>`;
      case "missed":
        return html`<p class="missed">
          ${icons.warning} ${this.words.mediaFailed(entry.filename)}
        </p>`;
      case "asked":
        return html`<hm-card
          .language=${this.language}
          .entry=${entry}
          .conversation=${this.conversation}
          .online=${this.online}
        ></hm-card>`;
    }
  }

  #said(entry: Said): TemplateResult {
    const { words } = this;
    return html`<article
      aria-label=${words.agentSays(this.conversation.agent.name)}
      aria-busy=${this.growing ? "true" : "false"}
    >
      <div class="markdown ${this.growing ? "growing" : ""}"></div>
      ${
        entry.final && !entry.complete
          ? html`<p class="missed">${icons.warning} ${words.incomplete}</p>`
          : nothing
      }
      ${this.growing ? nothing : this.#foot(entry)}
    </article>`;
  }

  #foot(entry?: Said): TemplateResult {
    const { words } = this;
    return html`<footer>
      <time datetime=${new Date(this.entry.at).toISOString()}
        >${clock(this.entry.at, this.language)}</time
      >
      ${
        entry === undefined
          ? nothing
          : html`<button
              type="button"
              class="quiet"
              aria-label=${this.copied ? words.copied : words.copyMessage}
              title=${words.copyMessage}
              @click=${() => void this.#copy(entry.text)}
            >
              ${this.copied ? icons.check : icons.copy}
            </button>`
      }
    </footer>`;
  }

  #mine(entry: Mine): TemplateResult {
    const { words } = this;
    const { state } = entry;
    const waiting = state === "queued" || state === "sending";
    const failed = state === "failed";
    const size = entry.file?.size ?? 0;
    const moving = waiting && entry.kind !== "text";
    const sent = this.uploaded ?? 0;
    return html`<article aria-label=${words.you}>
      ${
        entry.file === undefined
          ? html`<p class="text" dir="auto">${entry.text}</p>`
          : html`<hm-media
                .language=${this.language}
                .file=${{
                  kind: entry.kind === "voice" ? "voice" : (entry.file.mime.split("/")[0] ?? ""),
                  mime: entry.file.mime,
                  filename: entry.file.filename,
                  size: entry.file.size,
                  blob: entry.blob,
                  caption: "",
                  own: true,
                }}
              ></hm-media>
              ${entry.text === "" ? nothing : html`<p class="text" dir="auto">${entry.text}</p>`}`
      }
      ${
        moving
          ? html`<div class="upload">
              <progress
                max=${size}
                value=${Math.min(sent, size)}
                aria-label=${words.state["sending"] ?? ""}
              ></progress>
              <span>${words.progress(bytes(sent, this.language), bytes(size, this.language))}</span>
              <button type="button" class="link" @click=${this.#discard}>${words.cancel}</button>
            </div>`
          : nothing
      }
      ${
        failed
          ? html`<div class="failed" role="group">
              <p>
                ${icons.warning}
                <strong>${words.state["failed"]}.</strong>
                ${words.failure[entry.failure?.code ?? ""] ?? entry.failure?.message ?? ""}
              </p>
              <div class="row">
                <button type="button" class="small" @click=${() => this.conversation.retry(entry)}>
                  ${words.sendAgain}
                </button>
                <button type="button" class="small plain" @click=${this.#discard}>
                  ${words.remove}
                </button>
              </div>
            </div>`
          : nothing
      }
      <footer>
        <time datetime=${new Date(entry.at).toISOString()}>${clock(entry.at, this.language)}</time>
        ${
          failed
            ? nothing
            : html`<span class="state" title=${words.state[state] ?? ""}>
                ${waiting ? icons.clock : state === "sent" ? icons.check : icons.checks}
                <span class=${waiting ? "" : "hidden"}>${words.state[state]}</span>
              </span>`
        }
      </footer>
    </article>`;
  }

  readonly #discard = (): void => {
    if (this.entry.type === "mine") this.conversation.discard(this.entry);
  };

  async #copy(text: string): Promise<void> {
    this.copied = await copyText(text);
    setTimeout(() => {
      this.copied = false;
    }, 1_600);
  }
}

customElements.define("hm-entry", EntryView);
