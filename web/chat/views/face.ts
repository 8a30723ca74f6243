/** The agent's face: the page it announced, or a small one of the app's own. */
import { html, nothing, type PropertyDeclarations, type PropertyValues } from "lit";
import { View } from "./view.ts";

export class FaceView extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    state: { attribute: false },
    url: { attribute: false },
    loaded: { state: true },
  };
  declare state: string;
  declare url: string;
  declare loaded: boolean;

  constructor() {
    super();
    this.state = "idle";
    this.url = "";
    this.loaded = false;
  }

  /** A page over http inside one over https is blocked, and would only leave a hole. */
  get #page(): string {
    return this.url !== "" && (location.protocol === "http:" || this.url.startsWith("https:"))
      ? this.url
      : "";
  }

  protected override willUpdate(changed: PropertyValues<this>): void {
    if (changed.has("url")) this.loaded = false;
  }

  protected override updated(): void {
    this.dataset["state"] = this.state;
    this.#tell();
  }

  protected override render(): unknown {
    const page = this.#page;
    return html`
      <svg viewBox="0 0 48 48" aria-hidden="true" ?hidden=${this.loaded && page !== ""}>
        <circle class="aura" cx="24" cy="24" r="22" />
        <circle class="skin" cx="24" cy="24" r="18" />
        <g class="look">
          <ellipse class="eye" cx="18" cy="22.5" rx="2.2" ry="3.2" />
          <ellipse class="eye" cx="30" cy="22.5" rx="2.2" ry="3.2" />
          <path class="smile" d="M19 30.5q5 4 10 0" />
          <ellipse class="mouth" cx="24" cy="31" rx="4" ry="2.6" />
        </g>
      </svg>
      ${
        page === ""
          ? nothing
          : html`<iframe
              src=${page}
              title=${this.words.avatar[this.state] ?? this.state}
              tabindex="-1"
              aria-hidden="true"
              sandbox="allow-scripts"
              referrerpolicy="no-referrer"
              ?hidden=${!this.loaded}
              @load=${this.#nowLoaded}
            ></iframe>`
      }
    `;
  }

  readonly #nowLoaded = (): void => {
    this.loaded = true;
    this.#tell();
  };

  #tell(): void {
    const frame = this.find<HTMLIFrameElement>("iframe");
    // The state is no secret, and a sandboxed page has no origin to name.
    frame?.contentWindow?.postMessage({ t: "avatar", state: this.state }, "*");
  }
}

customElements.define("hm-face", FaceView);
