/** Cards that are open, and answers that are under way. */
import type { Clock } from "./clock.ts";
import { HermesError } from "./errors.ts";
import type { Card, CardOutcome } from "./events.ts";
import type { ErrorFrame, PromptAnswerFrame, PromptDoneFrame, PromptFrame } from "./protocol.ts";

interface PendingAnswer {
  readonly frame: PromptAnswerFrame;
  readonly promise: Promise<CardOutcome>;
  readonly resolve: (outcome: CardOutcome) => void;
  readonly reject: (error: HermesError) => void;
}

export interface CardAnswer {
  /** One of the card's options. */
  readonly optionId?: string;
  /** The user's own words, for `clarify`. */
  readonly text?: string;
}

export class Cards {
  readonly #clock: Clock;
  readonly #send: (frame: PromptAnswerFrame) => boolean;
  readonly #open = new Map<string, Card>();
  readonly #answers = new Map<string, PendingAnswer>();

  constructor(clock: Clock, send: (frame: PromptAnswerFrame) => boolean) {
    this.#clock = clock;
    this.#send = send;
  }

  list(): Card[] {
    return [...this.#open.values()];
  }

  shown(frame: PromptFrame): Card {
    const card: Card = {
      id: frame.id,
      kind: frame.kind,
      text: frame.text,
      options: frame.options,
      session: frame.session,
      deadline: this.#clock.now() + frame.timeout_seconds * 1000,
      ...(frame.command === undefined ? {} : { command: frame.command }),
      ...(frame.description === undefined ? {} : { description: frame.description }),
    };
    this.#open.set(card.id, card);
    return card;
  }

  done(frame: PromptDoneFrame): CardOutcome {
    const outcome: CardOutcome = {
      id: frame.id,
      expired: frame.expired === true,
      ...(frame.option_id === undefined ? {} : { optionId: frame.option_id }),
    };
    this.#open.delete(frame.id);
    this.#answers.get(frame.id)?.resolve(outcome);
    this.#answers.delete(frame.id);
    return outcome;
  }

  /**
   * Answers a card. The answer is repeated on the next connection until the door tells the outcome:
   * a card is answered once, so nothing is decided twice.
   */
  answer(id: string, answer: CardAnswer): Promise<CardOutcome> {
    const pending = this.#answers.get(id);
    if (pending !== undefined) return pending.promise; // the first answer stands
    const frame: PromptAnswerFrame = {
      t: "prompt",
      prompt_id: id,
      ...(answer.optionId === undefined ? {} : { option_id: answer.optionId }),
      ...(answer.text === undefined ? {} : { text: answer.text }),
    };
    let resolve!: (outcome: CardOutcome) => void;
    let reject!: (error: HermesError) => void;
    const promise = new Promise<CardOutcome>((done, failed) => {
      resolve = done;
      reject = failed;
    });
    promise.catch(() => undefined);
    this.#answers.set(id, { frame, promise, resolve, reject });
    this.#send(frame);
    return promise;
  }

  /** A new connection: the answers the door has not confirmed go out again. */
  connected(): void {
    for (const { frame } of this.#answers.values()) this.#send(frame);
  }

  /** @returns false if the error is about something else than an answer */
  refused(error: ErrorFrame): boolean {
    const [only] = this.#answers.keys();
    const alone = this.#answers.size === 1 && error.code === "forbidden" && error.id === undefined;
    const id = alone ? only : error.id;
    const answer = id === undefined ? undefined : this.#answers.get(id);
    if (id === undefined || answer === undefined) return false;
    this.#answers.delete(id);
    answer.reject(new HermesError(error.code, error.message));
    return true;
  }

  stopped(error: HermesError): void {
    for (const answer of this.#answers.values()) answer.reject(error);
    this.#answers.clear();
  }
}
