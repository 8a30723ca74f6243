/** What a person does in the chat and sees there. */
import type { Locator, Page } from "playwright-core";
import { until } from "./browser.ts";

export class ChatPage {
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  /** Opens the chat that the door at `address` serves, and connects to that door. */
  async connect(address: string, token: string): Promise<void> {
    await this.page.goto(`http://${address}/chat/`);
    await this.page.locator("#agent-token").fill(token);
    await this.page.locator("hm-agent-form button[type=submit]").click();
    await this.ready();
  }

  async ready(): Promise<void> {
    await this.page.locator("hm-line[data-phase=ready]").waitFor();
  }

  async phase(phase: string): Promise<void> {
    await this.page.locator(`hm-line[data-phase=${phase}]`).waitFor();
  }

  get field(): Locator {
    return this.page.locator("hm-composer .write textarea");
  }

  async say(text: string): Promise<void> {
    await this.field.fill(text);
    await this.page.locator("hm-composer button[type=submit]").click();
  }

  /** Texts of the agent, oldest first. */
  answers(): Promise<string[]> {
    return this.page
      .locator("hm-entry.said .markdown")
      .evaluateAll((all) => all.map((one) => (one as HTMLElement).innerText.trim()));
  }

  /** Texts of the person, oldest first. */
  sent(): Promise<string[]> {
    return this.page
      .locator("hm-entry.mine .text")
      .evaluateAll((all) => all.map((one) => (one as HTMLElement).innerText.trim()));
  }

  /** Waits for an answer that fits. */
  answer(fits: string | RegExp): Promise<string> {
    return until(
      async () =>
        (await this.answers()).find((text) =>
          typeof fits === "string" ? text === fits : fits.test(text),
        ),
      `an answer like ${String(fits)}`,
    );
  }

  /** The open card. */
  async card(): Promise<Locator> {
    const card = this.page.locator("hm-card .card.open").last();
    await card.waitFor();
    return card;
  }

  outcomes(): Promise<string[]> {
    return this.page
      .locator("hm-card .outcome")
      .evaluateAll((all) => all.map((one) => (one as HTMLElement).innerText.trim()));
  }
}

export function words(count: number): string {
  return Array.from({ length: count }, (_, index) => `word${index + 1}`).join(" ");
}

/** How often `part` occurs in the texts. */
export function occurrences(texts: readonly string[], part: string): number {
  return texts.filter((text) => text.includes(part)).length;
}
