/** Typed events without `EventTarget`, which React Native lacks. */

export class Emitter<Events> {
  readonly #listeners = new Map<keyof Events, Set<(value: never) => void>>();
  readonly #failed: (event: keyof Events, error: unknown) => void;

  /** @param failed told about a listener that threw; the others are called all the same */
  constructor(failed: (event: keyof Events, error: unknown) => void) {
    this.#failed = failed;
  }

  on<Name extends keyof Events>(event: Name, listener: (value: Events[Name]) => void): () => void {
    let listeners = this.#listeners.get(event);
    if (listeners === undefined) this.#listeners.set(event, (listeners = new Set()));
    // A wrapper, so that the same function may be registered twice and removed once.
    const own = (value: Events[Name]): void => {
      listener(value);
    };
    listeners.add(own);
    return () => {
      listeners.delete(own);
    };
  }

  emit<Name extends keyof Events>(event: Name, value: Events[Name]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) {
      try {
        (listener as (value: Events[Name]) => void)(value);
      } catch (error) {
        this.#failed(event, error);
      }
    }
  }
}
