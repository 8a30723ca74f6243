/**
 * The runs that are under way, kept so that a reloaded page and a second tab find them, and the
 * conversation this tab is in. Gone with the run's end; no message and no answer is kept here beyond
 * that.
 */
export interface RunningRun {
  readonly runId: string;
  readonly sessionId: string;
  readonly asked: string;
  readonly selection?: string;
  readonly traceId?: string;
}

/** A run that nobody came back for is forgotten, in milliseconds. */
const KEEP = 24 * 60 * 60 * 1000;

export class RunMarks {
  readonly #prefix: string;
  readonly #place: string;

  constructor(workspaceId: string, documentId: string) {
    const page = `${encodeURIComponent(workspaceId)}:${encodeURIComponent(documentId)}`;
    this.#prefix = `hermes-panel:run:${page}:`;
    this.#place = `hermes-panel:session:${page}`;
  }

  /** The conversation this tab was in before it was reloaded. */
  get session(): string | undefined {
    try {
      return sessionStorage.getItem(this.#place) ?? undefined;
    } catch {
      return undefined;
    }
  }

  set session(sessionId: string | undefined) {
    try {
      if (sessionId === undefined) sessionStorage.removeItem(this.#place);
      else sessionStorage.setItem(this.#place, sessionId);
    } catch {
      // Without storage a reload begins with the newest conversation.
    }
  }

  /** The run under way in this conversation. */
  of(sessionId: string): RunningRun | undefined {
    return this.#all().find((run) => run.sessionId === sessionId);
  }

  /** The run of this document that was started last. */
  get newest(): RunningRun | undefined {
    return this.#all()[0];
  }

  write(run: RunningRun): void {
    try {
      localStorage.setItem(this.#keyOf(run.sessionId), JSON.stringify({ ...run, at: Date.now() }));
    } catch {
      // Without storage a reload shows the session as Hermes has it, and no more.
    }
  }

  /** Removes the mark of this run; a newer run's mark stays. */
  clear(runId: string): void {
    const run = this.#all().find((one) => one.runId === runId);
    if (run !== undefined) this.#remove(this.#keyOf(run.sessionId));
  }

  /** Calls back when another tab starts a run on this document. @returns how to stop that */
  watch(started: (run: RunningRun) => void): () => void {
    const listener = (event: StorageEvent): void => {
      const own = event.key?.startsWith(this.#prefix) === true;
      const run = own ? runOf(event.newValue) : undefined;
      if (run !== undefined) started(run);
    };
    window.addEventListener("storage", listener);
    return () => {
      window.removeEventListener("storage", listener);
    };
  }

  #keyOf(sessionId: string): string {
    return this.#prefix + sessionId;
  }

  #remove(key: string): void {
    try {
      localStorage.removeItem(key);
    } catch {
      // Nothing was kept.
    }
  }

  /** Newest first. */
  #all(): RunningRun[] {
    const found: (RunningRun & { readonly at: number })[] = [];
    try {
      for (const key of Object.keys(localStorage)) {
        if (!key.startsWith(this.#prefix)) continue;
        const run = runOf(localStorage.getItem(key));
        if (run === undefined || Date.now() - run.at > KEEP) this.#remove(key);
        else found.push(run);
      }
    } catch {
      return [];
    }
    return found.sort((one, other) => other.at - one.at);
  }
}

function runOf(text: string | null): (RunningRun & { readonly at: number }) | undefined {
  try {
    const value = JSON.parse(text ?? "null") as Readonly<Record<string, unknown>> | null;
    const { runId, sessionId, asked, selection, traceId, at } = value ?? {};
    if (typeof runId !== "string" || typeof sessionId !== "string") return undefined;
    return {
      runId,
      sessionId,
      asked: typeof asked === "string" ? asked : "",
      at: typeof at === "number" ? at : 0,
      ...(typeof selection === "string" ? { selection } : {}),
      ...(typeof traceId === "string" ? { traceId } : {}),
    };
  } catch {
    return undefined;
  }
}
