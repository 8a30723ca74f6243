/** Where an agent's address and token are entered, scanned or pasted. They are never read from the page's URL. */
import { html, nothing, type PropertyDeclarations, type TemplateResult } from "lit";
import { newAgentId, newDeviceId, type Agent } from "../agents.ts";
import { readConnectionCode } from "../connection-code.ts";
import { icons } from "./icons.ts";
import { View } from "./view.ts";

const ADDRESS = /^(?:wss?|https?):\/\/[^\s/?#@]+(?:\/[^\s?#]*)?$/i;

export class AgentForm extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    agent: { attribute: false },
    suggested: { attribute: false },
    shown: { state: true },
    problem: { state: true },
    scanning: { state: true },
    pasting: { state: true },
  };
  /** The agent to change; undefined for a new one. */
  declare agent: Agent | undefined;
  /** An address to start with. */
  declare suggested: string;
  declare shown: boolean;
  declare problem: string;
  declare scanning: boolean;
  declare pasting: boolean;
  readonly #newDevice = newDeviceId();
  #camera: AbortController | undefined;

  constructor() {
    super();
    this.suggested = "";
    this.shown = false;
    this.problem = "";
    this.scanning = false;
    this.pasting = false;
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#camera?.abort();
  }

  protected override render(): unknown {
    const { words, agent } = this;
    return html`<form class="agent-form" @submit=${this.#submit} novalidate autocomplete="off">
      ${agent === undefined ? this.#codes() : nothing}
      ${this.#field("url", words.address, words.addressHint, agent?.url ?? this.suggested, "url")}
      <label class="line" for="agent-token">
        <span>${words.token}</span>
        <span class="with-button">
          <input
            id="agent-token"
            name="token"
            type=${this.shown ? "text" : "password"}
            .defaultValue=${agent?.token ?? ""}
            autocomplete="off"
            autocapitalize="off"
            spellcheck="false"
            aria-describedby="hint-token"
            required
          />
          <button
            type="button"
            class="small plain"
            aria-pressed=${this.shown ? "true" : "false"}
            @click=${() => {
              this.shown = !this.shown;
            }}
          >
            ${this.shown ? words.hideToken : words.showToken}
          </button>
        </span>
        <small id="hint-token">${words.tokenHint}</small>
      </label>
      ${this.#field("name", words.agentName, words.agentNameHint, agent?.name ?? "Hermes", "text")}
      <details>
        <summary>${words.more}</summary>
        ${this.#field(
          "device",
          words.deviceId,
          words.deviceIdHint,
          agent?.deviceId ?? this.#newDevice,
          "text",
        )}
      </details>
      ${
        this.problem === ""
          ? nothing
          : html`<p class="problem" role="alert">${icons.warning} <span>${this.problem}</span></p>`
      }
      <div class="row end">
        <button type="submit" class="primary">
          ${agent === undefined ? words.connect : words.save}
        </button>
      </div>
    </form>`;
  }

  #field(name: string, label: string, hint: string, value: string, type: string): TemplateResult {
    return html`<label class="line" for="agent-${name}">
      <span>${label}</span>
      <input
        id="agent-${name}"
        name=${name}
        type="text"
        inputmode=${type}
        .defaultValue=${value}
        autocomplete="off"
        autocapitalize="off"
        spellcheck="false"
        aria-describedby="hint-${name}"
      />
      <small id="hint-${name}">${hint}</small>
    </label>`;
  }

  #codes(): TemplateResult {
    const { words } = this;
    return html`<div class="codes">
        <button type="button" class="small" @click=${this.#scan}>
          ${icons.scan} ${words.scan}
        </button>
        <button
          type="button"
          class="small"
          @click=${() => this.find<HTMLInputElement>("input[type=file]")?.click()}
        >
          ${words.fromPicture}
        </button>
        <button
          type="button"
          class="small"
          aria-expanded=${this.pasting ? "true" : "false"}
          @click=${this.#togglePaste}
        >
          ${words.paste}
        </button>
        <input type="file" accept="image/*" hidden tabindex="-1" @change=${this.#picture} />
      </div>
      ${
        this.scanning
          ? html`<div class="camera">
              <video muted playsinline aria-label=${words.scanning}></video>
              <p>${words.scanning}</p>
              <button type="button" class="small" @click=${() => this.#camera?.abort()}>
                ${words.cancel}
              </button>
            </div>`
          : nothing
      }
      ${
        this.pasting
          ? html`<textarea
              class="code"
              rows="3"
              aria-label=${words.pasteHint}
              placeholder=${words.pasteHint}
              spellcheck="false"
              @input=${(event: Event) => {
                const { value } = event.target as HTMLTextAreaElement;
                if (value.trim() !== "") this.#take(value);
              }}
            ></textarea>`
          : nothing
      }`;
  }

  readonly #togglePaste = async (): Promise<void> => {
    this.pasting = !this.pasting;
    await this.updateComplete;
    if (this.pasting) this.find<HTMLElement>("textarea.code")?.focus();
  };

  readonly #scan = async (): Promise<void> => {
    this.problem = "";
    this.scanning = true;
    this.#camera = new AbortController();
    await this.updateComplete;
    const video = this.find<HTMLVideoElement>("video");
    try {
      const { readCamera } = await import("../scanner.ts");
      if (video !== undefined) this.#take(await readCamera(video, this.#camera.signal));
    } catch {
      if (!this.#camera.signal.aborted) this.problem = this.words.noCamera;
    } finally {
      this.scanning = false;
    }
  };

  readonly #picture = async (event: Event): Promise<void> => {
    const input = event.target as HTMLInputElement;
    const file = input.files?.[0];
    input.value = "";
    if (file === undefined) return;
    this.problem = "";
    const { readPicture } = await import("../scanner.ts");
    const text = await readPicture(file).catch(() => undefined);
    if (text === undefined) this.problem = this.words.noCode;
    else this.#take(text);
  };

  /** Fills the form from a code; the person still presses the button. */
  #take(text: string): void {
    const code = readConnectionCode(text);
    if (code === undefined) {
      this.problem = this.words.badCode;
      return;
    }
    this.problem = "";
    this.#input("url").value = code.url;
    if (code.token !== "") this.#input("token").value = code.token;
    if (code.name !== "") this.#input("name").value = code.name;
    if (code.device !== "") this.#input("device").value = code.device;
    this.pasting = false;
    this.find<HTMLElement>("button[type=submit]")?.focus();
  }

  #input(name: string): HTMLInputElement {
    const input = this.find<HTMLInputElement>(`input[name=${name}]`);
    if (input === undefined) throw new Error(`The form has no field ${name}.`);
    return input;
  }

  readonly #submit = (event: Event): void => {
    event.preventDefault();
    const value = (name: string): string => this.#input(name).value.trim();
    if (!ADDRESS.test(value("url"))) {
      this.#refuse("url", this.words.stopReason["bad_url"] ?? "");
    } else if (value("token") === "") {
      this.#refuse("token", this.words.stopReason["no_token"] ?? "");
    } else {
      const detail: Agent = {
        id: this.agent?.id ?? newAgentId(),
        url: value("url"),
        token: value("token"),
        name: value("name") || "Hermes",
        deviceId: cleanDevice(value("device")) || this.#newDevice,
      };
      this.dispatchEvent(new CustomEvent("agent", { bubbles: true, detail }));
    }
  };

  #refuse(name: string, problem: string): void {
    this.problem = problem;
    const input = this.#input(name);
    input.setAttribute("aria-invalid", "true");
    input.addEventListener(
      "input",
      () => {
        input.removeAttribute("aria-invalid");
      },
      { once: true },
    );
    input.focus();
  }
}

/** What the door takes as a device id. */
function cleanDevice(value: string): string {
  // eslint-disable-next-line no-control-regex -- control characters are what is removed
  return value.replace(/[\u0000-\u001f\u007f-\u009f:/]/g, "").slice(0, 120);
}

customElements.define("hm-agent-form", AgentForm);
