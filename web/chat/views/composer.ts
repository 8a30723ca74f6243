/** Where the person writes, speaks and attaches. */
import { HermesError, MAX_MEDIA_BYTES, randomId, type MediaInKind } from "@hermes-mobile/client";
import { html, nothing, type PropertyDeclarations, type TemplateResult } from "lit";
import { repeat } from "lit/directives/repeat.js";
import type { Conversation } from "../conversation.ts";
import { bytes, minutes } from "../format.ts";
import { Recording, canRecord } from "../recorder.ts";
import { icons } from "./icons.ts";
import { View } from "./view.ts";

interface Attached {
  readonly id: string;
  readonly file: File;
  readonly preview: string;
}

/** Shown from this share of the longest text on. */
const COUNT_FROM = 0.9;
const PROBLEMS_TOLD = 3;

export class ComposerView extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    conversation: { attribute: false },
    limits: { attribute: false },
    text: { state: true },
    files: { state: true },
    problem: { state: true },
    recording: { state: true },
    converting: { state: true },
    now: { state: true },
  };
  declare conversation: Conversation;
  declare limits: {
    readonly media: number;
    readonly text: number;
    readonly kinds?: readonly string[];
  };
  declare text: string;
  declare files: readonly Attached[];
  declare problem: string;
  declare recording: Recording | undefined;
  declare converting: boolean;
  declare now: number;
  #clock: ReturnType<typeof setInterval> | undefined;
  /** The browser is being asked for the microphone, which takes as long as the person does. */
  #asking = false;

  constructor() {
    super();
    this.text = "";
    this.files = [];
    this.problem = "";
    this.converting = false;
    this.now = Date.now();
  }

  override connectedCallback(): void {
    super.connectedCallback();
    window.addEventListener("resize", this.#grow);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.removeEventListener("resize", this.#grow);
    this.#endRecording();
    for (const { preview } of this.files) if (preview !== "") URL.revokeObjectURL(preview);
  }

  /** What was written and not sent, so that the page may go in between. */
  restore(text: string): void {
    this.text = text;
    void this.updateComplete.then(() => {
      this.#grow();
    });
  }

  override focus(): void {
    this.#area?.focus();
  }

  /** Takes files that were chosen, pasted or dropped. */
  attach(files: Iterable<File>): void {
    const problems: string[] = [];
    const limit = Math.min(this.limits.media, MAX_MEDIA_BYTES);
    for (const file of files) {
      const kind = kindOf(file.type);
      if (file.size > limit) {
        problems.push(this.words.fileTooBig(file.name, bytes(limit, this.language)));
      } else if (file.size === 0) {
        problems.push(this.words.fileEmpty(file.name));
      } else if (this.limits.kinds !== undefined && !this.limits.kinds.includes(kind)) {
        problems.push(this.words.notAccepted(this.words.kind[kind] ?? kind));
      } else {
        const preview = kind === "image" ? URL.createObjectURL(file) : "";
        this.files = [...this.files, { id: randomId(), file, preview }];
      }
    }
    // Of many files that are refused alike, a few tell enough.
    this.problem = [...new Set(problems)].slice(0, PROBLEMS_TOLD).join(" ");
    this.focus();
  }

  protected override render(): unknown {
    return html`
      ${
        this.problem === ""
          ? nothing
          : html`<p class="problem" role="alert">${icons.warning} <span>${this.problem}</span></p>`
      }
      ${this.files.length === 0 ? nothing : this.#tray()}
      ${this.recording === undefined ? this.#writing() : this.#speaking(this.recording)}
    `;
  }

  #tray(): TemplateResult {
    const { words } = this;
    return html`<ul class="tray" aria-label=${words.attached}>
      ${repeat(
        this.files,
        ({ id }) => id,
        ({ id, file, preview }) =>
          html`<li>
            ${preview === "" ? html`<span class="badge">${icons.file}</span>` : html`<img src=${preview} alt="" />`}
            <span class="about">
              <span class="name">${file.name}</span>
              <span class="detail">${bytes(file.size, this.language)}</span>
            </span>
            <button
              type="button"
              class="quiet"
              aria-label="${words.remove}: ${file.name}"
              @click=${() => {
                this.#detach(id);
              }}
            >
              ${icons.close}
            </button>
          </li>`,
      )}
    </ul>`;
  }

  #writing(): TemplateResult {
    const { words } = this;
    const length = [...this.text].length;
    const tooLong = length > this.limits.text;
    const empty = this.text.trim() === "" && this.files.length === 0;
    return html`<form class="write" @submit=${this.#submit}>
      <input type="file" multiple hidden tabindex="-1" @change=${this.#chosen} />
      <button
        type="button"
        class="icon-only plain"
        aria-label=${words.attach}
        title=${words.attach}
        @click=${() => this.find<HTMLInputElement>("input[type=file]")?.click()}
      >
        ${icons.attach}
      </button>
      <div class="field">
        <textarea
          rows="1"
          dir="auto"
          aria-label=${words.messageTo(this.conversation.agent.name)}
          placeholder=${words.message}
          enterkeyhint="send"
          .value=${this.text}
          @input=${this.#written}
          @keydown=${this.#keyed}
          @paste=${this.#pasted}
        ></textarea>
        ${
          length > this.limits.text * COUNT_FROM
            ? html`<span class="count ${tooLong ? "over" : ""}" role="status"
                >${words.tooLong(length, this.limits.text)}</span
              >`
            : nothing
        }
      </div>
      ${
        empty && !this.converting
          ? html`<button
              type="button"
              class="icon-only primary"
              aria-label=${words.record}
              title=${words.record}
              @click=${this.#record}
            >
              ${icons.microphone}
            </button>`
          : html`<button
              type="submit"
              class="icon-only primary"
              aria-label=${this.converting ? words.converting : words.send}
              title=${words.send}
              ?disabled=${tooLong || this.converting}
            >
              ${this.converting ? html`<span class="spinner"></span>` : icons.send}
            </button>`
      }
    </form>`;
  }

  #speaking(recording: Recording): TemplateResult {
    const { words } = this;
    const lasted = this.now - recording.startedAt;
    return html`<div class="speak" role="group" aria-label=${words.recording}>
      <button
        type="button"
        class="icon-only plain"
        aria-label=${words.discardRecording}
        title=${words.discardRecording}
        @click=${this.#throwAway}
      >
        ${icons.trash}
      </button>
      <span class="live" aria-hidden="true"></span>
      <span class="lasted" role="timer">${minutes(lasted)}</span>
      <span class="left">${words.recordingLeft(minutes(recording.longest - lasted))}</span>
      <button
        type="button"
        class="icon-only primary"
        aria-label=${words.stopRecording}
        title=${words.stopRecording}
        @click=${this.#sendRecording}
      >
        ${icons.send}
      </button>
    </div>`;
  }

  get #area(): HTMLTextAreaElement | undefined {
    return this.find<HTMLTextAreaElement>("textarea");
  }

  readonly #written = (event: Event): void => {
    this.text = (event.target as HTMLTextAreaElement).value;
    this.problem = "";
    this.#grow();
    this.#keep();
    if (this.text !== "") this.conversation.typing();
  };

  /** As tall as its text, up to a third of the window (the stylesheet bounds it). */
  readonly #grow = (): void => {
    const area = this.#area;
    if (area === undefined) return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight}px`;
  };

  #keep(): void {
    this.dispatchEvent(new CustomEvent("draft", { detail: this.text }));
  }

  readonly #keyed = (event: KeyboardEvent): void => {
    // An Enter that ends a Chinese word is no order to send; on a phone Enter is a new line.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229)
      return;
    const phone = matchMedia("(pointer: coarse)").matches && !matchMedia("(pointer: fine)").matches;
    if (phone && !event.ctrlKey) return;
    event.preventDefault();
    this.#send();
  };

  readonly #pasted = (event: ClipboardEvent): void => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    this.attach(files);
  };

  readonly #chosen = (event: Event): void => {
    const input = event.target as HTMLInputElement;
    this.attach([...(input.files ?? [])]);
    input.value = "";
  };

  #detach(id: string): void {
    const gone = this.files.find((attached) => attached.id === id);
    if (gone !== undefined && gone.preview !== "") URL.revokeObjectURL(gone.preview);
    this.files = this.files.filter((attached) => attached.id !== id);
    this.focus();
  }

  readonly #submit = (event: Event): void => {
    event.preventDefault();
    this.#send();
  };

  #send(): void {
    const text = this.text.trim();
    if ((text === "" && this.files.length === 0) || [...text].length > this.limits.text) return;
    try {
      // The text goes with the first file, as what it is about.
      let caption = text;
      if (this.files.length === 0) this.conversation.sendText(text);
      for (const { id, file } of this.files) {
        this.conversation.sendFile(file, file.name, caption);
        caption = "";
        this.text = "";
        this.#detach(id);
      }
      this.text = "";
      this.problem = "";
      this.#keep();
      this.dispatchEvent(new CustomEvent("sent"));
    } catch (error) {
      this.problem = this.#told(error);
    }
    void this.updateComplete.then(() => {
      this.#grow();
      this.focus();
    });
  }

  readonly #record = async (): Promise<void> => {
    this.problem = "";
    if (!canRecord()) {
      this.problem = window.isSecureContext
        ? this.words.noMicrophone
        : this.words.insecureMicrophone;
      return;
    }
    if (this.#asking) return;
    this.#asking = true;
    let recording: Recording;
    try {
      recording = await Recording.start(() => {
        void this.#sendRecording();
      });
    } catch {
      this.problem = this.words.noMicrophone;
      return;
    } finally {
      this.#asking = false;
    }
    if (!this.isConnected) {
      recording.discard();
      return;
    }
    this.recording = recording;
    this.now = Date.now();
    this.#clock = setInterval(() => {
      this.now = Date.now();
    }, 500);
    await this.updateComplete;
    this.find<HTMLElement>(".speak .primary")?.focus();
  };

  readonly #throwAway = (): void => {
    this.#endRecording();
    void this.updateComplete.then(() => {
      this.focus();
    });
  };

  #endRecording(): void {
    clearInterval(this.#clock);
    this.recording?.discard();
    this.recording = undefined;
  }

  readonly #sendRecording = async (): Promise<void> => {
    const { recording } = this;
    if (recording === undefined) return;
    clearInterval(this.#clock);
    this.recording = undefined;
    this.converting = true;
    try {
      this.conversation.sendVoice(await recording.finish());
      this.dispatchEvent(new CustomEvent("sent"));
    } catch (error) {
      this.problem =
        error instanceof HermesError
          ? this.#told(error)
          : (this.words.failure["unsupported_format"] ?? "");
    } finally {
      this.converting = false;
    }
    await this.updateComplete;
    this.focus();
  };

  #told(error: unknown): string {
    const code = error instanceof HermesError ? error.code : "";
    return (
      this.words.failure[code] ?? (error instanceof Error ? error.message : this.words.unknownError)
    );
  }
}

/** The kind a file is sent as. */
function kindOf(mime: string): MediaInKind {
  const major = mime.split("/")[0];
  return major === "image" || major === "video" || major === "audio" ? major : "document";
}

customElements.define("hm-composer", ComposerView);
