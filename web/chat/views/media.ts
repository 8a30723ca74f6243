/** A picture, film, sound or document, shown in its place. */
import {
  html,
  nothing,
  type PropertyDeclarations,
  type PropertyValues,
  type TemplateResult,
} from "lit";
import { bytes } from "../format.ts";
import { icons } from "./icons.ts";
import { View } from "./view.ts";

export interface MediaFile {
  readonly kind: string;
  readonly mime: string;
  readonly filename: string;
  readonly size: number;
  readonly caption?: string;
  readonly blob?: Blob | undefined;
  readonly url?: string;
  readonly own?: boolean;
}

/** Types a browser shows without running anything in them. */
const PICTURE = /^image\/(?:png|jpeg|gif|webp|avif|bmp|svg\+xml|x-icon)$/;

export class MediaView extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    file: { attribute: false },
    loadElsewhere: { state: true },
    broken: { state: true },
  };
  declare file: MediaFile;
  declare loadElsewhere: boolean;
  declare broken: boolean;
  #blob: Blob | undefined;
  #address = "";

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#release();
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.requestUpdate();
  }

  protected override willUpdate(changed: PropertyValues<this>): void {
    if (changed.has("file") && this.file.blob !== this.#blob) this.broken = false;
  }

  protected override render(): unknown {
    const { file } = this;
    const address = this.#source();
    return html`<figure class="media">
      ${address === undefined ? this.#elsewhere() : this.#content(address)}
      ${
        file.caption === undefined || file.caption === ""
          ? nothing
          : html`<figcaption>${file.caption}</figcaption>`
      }
    </figure>`;
  }

  /** Where the bytes are; undefined for a foreign server that has not been allowed yet. */
  #source(): string | undefined {
    const { blob, url } = this.file;
    if (blob !== undefined) {
      if (blob !== this.#blob) {
        this.#release();
        this.#blob = blob;
        this.#address = URL.createObjectURL(blob);
      }
      return this.#address;
    }
    if (url === undefined) return "";
    return this.loadElsewhere || hostOf(url) === location.host ? url : undefined;
  }

  #release(): void {
    if (this.#address !== "") URL.revokeObjectURL(this.#address);
    this.#address = "";
    this.#blob = undefined;
  }

  #content(address: string): TemplateResult {
    const { file, words } = this;
    const type = file.mime.split(";")[0]?.trim().toLowerCase() ?? "";
    const film = type.startsWith("video/");
    if (address === "" || this.broken) return this.#document(address);
    if (
      PICTURE.test(type) ||
      (file.url !== undefined && /^(?:image|animation)$/.test(file.kind) && !film)
    ) {
      const label = file.caption || file.filename || words.kind["image"] || "";
      return html`<button
        type="button"
        class="picture"
        aria-label="${words.open}: ${label}"
        @click=${() => this.#enlarge(address, label)}
      >
        <img src=${address} alt=${label} @error=${this.#nowBroken} />
      </button>`;
    }
    if (film || (file.url !== undefined && file.kind === "video")) {
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const loops = file.kind === "animation" && !still;
      return html`<video
        src=${address}
        controls
        playsinline
        preload="metadata"
        aria-label=${file.filename || (words.kind["video"] ?? "")}
        .muted=${file.kind === "animation"}
        ?autoplay=${loops}
        ?loop=${loops}
        @error=${this.#nowBroken}
      ></video>`;
    }
    if (type.startsWith("audio/") || file.kind === "voice") {
      return html`<div class="sound">
        <span>${file.filename || (file.own === true ? words.recording : words.kind["voice"])}</span>
        <audio
          src=${address}
          controls
          preload="metadata"
          aria-label=${file.filename || (words.kind["voice"] ?? "")}
          @error=${this.#nowBroken}
        ></audio>
      </div>`;
    }
    return this.#document(address);
  }

  #document(address: string): TemplateResult {
    const { file, words } = this;
    const name = file.filename || words.kind[file.kind] || words.kind["document"] || "";
    return html`<div class="paper">
      <span class="badge">${icons.file}</span>
      <span class="about">
        <span class="name">${name}</span>
        <span class="detail">
          ${file.size > 0 ? bytes(file.size, this.language) : nothing}
          ${this.broken ? html`<span>${words.notPlayable}</span>` : nothing}
        </span>
      </span>
      ${
        address === ""
          ? nothing
          : html`<a
              class="button icon-only"
              href=${address}
              download=${file.filename || "file"}
              target="_blank"
              rel="noopener noreferrer"
              aria-label="${words.download}: ${name}"
              title=${words.download}
              >${icons.download}</a
            >`
      }
    </div>`;
  }

  #elsewhere(): TemplateResult {
    const { file, words } = this;
    const name = file.filename || words.kind[file.kind] || "";
    return html`<div class="paper">
      <span class="badge">${icons.file}</span>
      <span class="about">
        <span class="name">${name}</span>
        <span class="detail">${words.loadHint}</span>
        <button
          type="button"
          class="small"
          @click=${() => {
            this.loadElsewhere = true;
          }}
        >
          ${words.loadFrom(hostOf(file.url ?? ""))}
        </button>
      </span>
    </div>`;
  }

  readonly #nowBroken = (): void => {
    this.broken = true;
  };

  #enlarge(address: string, label: string): void {
    const detail = { address, label };
    this.dispatchEvent(new CustomEvent("enlarge", { bubbles: true, detail }));
  }
}

function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return "";
  }
}

customElements.define("hm-media", MediaView);
