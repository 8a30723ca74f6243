/**
 * The run that is under way, kept so that a reloaded page and a second tab find it. Gone with the
 * run's end; no message and no answer is kept here beyond that.
 */
export interface RunningRun {
  readonly runId: string;
  readonly sessionId: string;
  readonly asked: string;
  readonly selection?: string;
  readonly traceId?: string;
}

export class RunMark {
  readonly #key: string;

  constructor(workspaceId: string, documentId: string) {
    this.#key = `hermes-panel:run:${encodeURIComponent(workspaceId)}:${encodeURIComponent(documentId)}`;
  }

  read(): RunningRun | undefined {
    try {
      return runOf(localStorage.getItem(this.#key));
    } catch {
      return undefined;
    }
  }

  write(run: RunningRun): void {
    try {
      localStorage.setItem(this.#key, JSON.stringify(run));
    } catch {
      // Without storage a reload shows the session as Hermes has it, and no more.
    }
  }

  /** Removes the mark of this run; a newer run's mark stays. */
  clear(runId: string): void {
    try {
      if (this.read()?.runId === runId) localStorage.removeItem(this.#key);
    } catch {
      // Nothing was kept.
    }
  }

  /** Calls back when another tab starts a run on this document. @returns how to stop that */
  watch(started: (run: RunningRun) => void): () => void {
    const listener = (event: StorageEvent): void => {
      const run = event.key === this.#key ? runOf(event.newValue) : undefined;
      if (run !== undefined) started(run);
    };
    window.addEventListener("storage", listener);
    return () => {
      window.removeEventListener("storage", listener);
    };
  }
}

function runOf(text: string | null): RunningRun | undefined {
  try {
    const value = JSON.parse(text ?? "null") as Partial<Record<keyof RunningRun, unknown>> | null;
    if (typeof value?.runId !== "string" || typeof value.sessionId !== "string") return undefined;
    return {
      runId: value.runId,
      sessionId: value.sessionId,
      asked: typeof value.asked === "string" ? value.asked : "",
      ...(typeof value.selection === "string" ? { selection: value.selection } : {}),
      ...(typeof value.traceId === "string" ? { traceId: value.traceId } : {}),
    };
  } catch {
    return undefined;
  }
}
