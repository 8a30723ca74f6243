/** A client on a real door, with everything it was told and ways to wait for it. */
import { WebSocket } from "ws";
import { HermesClient } from "../../src/client.ts";
import type { AgentMedia, AgentMessage, Card, HermesEvents } from "../../src/events.ts";
import type { HermesClientOptions } from "../../src/options.ts";
import { TOKEN } from "./programs.ts";

/** Longer than a busy machine needs, shorter than the limit of a test, whose report says less. */
const PATIENCE = 90_000;

export class Conversation {
  readonly client: HermesClient;
  readonly messages = new Map<string, AgentMessage>();
  /** Every state of every message, in order. */
  readonly revisions: AgentMessage[] = [];
  readonly media: AgentMedia[] = [];
  readonly warnings: HermesEvents["warning"][] = [];
  readonly states: HermesEvents["state"][] = [];

  constructor(url: string, options: Partial<HermesClientOptions> = {}) {
    this.client = new HermesClient({
      url,
      token: TOKEN,
      device: { id: `sdk-${Math.random().toString(36).slice(2)}` },
      webSocket: WebSocket,
      timing: { backoffBase: 50, backoffCap: 200 },
      ...options,
    });
    this.client.on("message", (message) => {
      this.messages.set(message.id, message);
      this.revisions.push(message);
    });
    this.client.on("media", (media) => this.media.push(media));
    this.client.on("warning", (warning) => this.warnings.push(warning));
    this.client.on("state", (state) => this.states.push(state));
  }

  async connected(): Promise<this> {
    const ready = this.client.whenReady();
    this.client.connect();
    await ready;
    return this;
  }

  /** The next value of an event that fits. Ask before what causes it: what is past does not count. */
  next<Name extends keyof HermesEvents>(
    event: Name,
    fits: (value: HermesEvents[Name]) => boolean = () => true,
  ): Promise<HermesEvents[Name]> {
    const told = new Promise<HermesEvents[Name]>((resolve, reject) => {
      const timer = setTimeout(() => {
        off();
        reject(
          new Error(
            `no fitting \`${event}\` in time; messages: ${this.texts().join(" | ").slice(0, 2000)}`,
          ),
        );
      }, PATIENCE);
      const off = this.client.on(event, (value) => {
        if (!fits(value)) return;
        clearTimeout(timer);
        off();
        resolve(value);
      });
    });
    // A test that failed before it came to this tells its own reason, and only that.
    told.catch(() => undefined);
    return told;
  }

  /** The message that fits, whether it is here already or still to come. */
  async message(fits: (message: AgentMessage) => boolean): Promise<AgentMessage> {
    return [...this.messages.values()].find(fits) ?? this.next("message", fits);
  }

  /** Sends a text and gives the finished message that fits. */
  async ask(
    text: string,
    fits: (message: AgentMessage) => boolean = () => true,
  ): Promise<AgentMessage> {
    const answer = this.next("message", (message) => message.final && fits(message));
    await this.client.sendText(text).accepted;
    return answer;
  }

  async askForCard(text: string): Promise<Card> {
    const card = this.next("prompt");
    await this.client.sendText(text).accepted;
    return card;
  }

  texts(): string[] {
    return [...this.messages.values()].map((message) => message.text);
  }

  close(): void {
    this.client.close();
  }
}
