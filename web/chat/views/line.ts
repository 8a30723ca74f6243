/** The state of the connection in plain words: a line under the name, and a bar where something is to be done. */
import { html, nothing, type PropertyDeclarations, type TemplateResult } from "lit";
import type { Line } from "../conversation.ts";
import { View } from "./view.ts";

class Ticking extends View {
  static override properties: PropertyDeclarations = {
    ...View.properties,
    line: { attribute: false },
    now: { state: true },
  };
  declare line: Line;
  declare now: number;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor() {
    super();
    this.line = { phase: "stopped" };
    this.now = Date.now();
  }

  protected override updated(): void {
    if (this.line.phase === "waiting") {
      this.#timer ??= setInterval(() => {
        this.now = Date.now();
      }, 1_000);
    } else {
      this.#stop();
    }
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#stop();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  protected get seconds(): number {
    if (this.line.phase !== "waiting") return 0;
    return Math.max(0, Math.ceil((this.line.retryAt - this.now) / 1000));
  }
}

export class LineView extends Ticking {
  static override properties: PropertyDeclarations = {
    ...Ticking.properties,
    avatar: { attribute: false },
  };
  declare avatar: string;

  protected override render(): unknown {
    const { line, words } = this;
    this.dataset["phase"] = line.phase;
    return html`<span class="dot" aria-hidden="true"></span><span>${this.#told(words)}</span>`;
  }

  #told(words: View["words"]): string {
    const { line } = this;
    switch (line.phase) {
      case "ready":
        return this.avatar === "idle"
          ? words.connected
          : (words.avatar[this.avatar] ?? words.connected);
      case "connecting":
        return words.connecting;
      case "waiting":
        return words.waitingShort;
      case "paused":
        return line.cause === "offline" ? words.offlineShort : words.hidden;
      case "elsewhere":
        return words.elsewhereShort;
      case "stopped":
        return words.notStarted;
    }
  }
}

export class LineBanner extends Ticking {
  protected override render(): unknown {
    const { line, words } = this;
    switch (line.phase) {
      case "ready":
        return nothing;
      case "connecting":
        // The first attempt is quick as a rule; a bar that flashes would only worry.
        return line.attempt > 1 ? this.#bar("info", words.connecting) : nothing;
      case "waiting":
        return this.#bar(
          "warning",
          words.retryIn(this.seconds),
          this.#button("use", words.retryNow),
        );
      case "paused":
        return line.cause === "offline" ? this.#bar("warning", words.offline) : nothing;
      case "elsewhere":
        return this.#bar("info", words.elsewhere, this.#button("use", words.useHere));
      case "stopped": {
        const { reason } = line;
        if (reason === undefined) return nothing;
        const told = words.stopReason[reason.code] ?? reason.message;
        const settings = ["auth_failed", "forbidden", "bad_url", "no_token"].includes(reason.code);
        const here = reason.code === "replaced" ? words.useHere : words.again;
        return this.#bar(
          "error",
          told,
          html`${settings ? this.#button("edit", words.checkSettings) : nothing}
          ${this.#button("use", here)}`,
        );
      }
    }
  }

  #bar(kind: string, text: string, action?: TemplateResult): TemplateResult {
    return html`<div class="bar ${kind}" role="status">
      <span>${text}</span>${action ?? nothing}
    </div>`;
  }

  #button(event: string, label: string): TemplateResult {
    return html`<button
      type="button"
      class="small"
      @click=${() => this.dispatchEvent(new CustomEvent(event))}
    >
      ${label}
    </button>`;
  }
}

customElements.define("hm-line", LineView);
customElements.define("hm-line-banner", LineBanner);
