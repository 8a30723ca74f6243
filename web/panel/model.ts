/** What the panel knows and does, without knowing how it is shown. */
import {
  HermesPanelClient,
  PanelError,
  RUN_END_EVENTS,
  isRunEvent,
  type ApprovalChoice,
  type Model,
  type RunEvent,
  type RunRequest,
  type RunStarted,
  type SessionSummary,
} from "@hermes-mobile/client";
import { RunMarks, type RunningRun } from "./resume.ts";
import {
  applied,
  approvalChanged,
  isOver,
  tellsAgain,
  turnsOf,
  withoutOpen,
  type Problem,
  type Turn,
} from "./transcript.ts";

export interface Context {
  readonly pageContext?: Readonly<Record<string, unknown>> | null;
  readonly selectedBlockId?: string | null;
  readonly selectedText?: string | null;
  /** What to send where the server finds all of it too large. */
  readonly smaller?: Omit<Context, "smaller">;
}

export interface PanelModelParts {
  readonly documentId: string;
  readonly workspaceId: string;
  readonly changed: () => void;
  readonly told: (event: "hermes-run-started" | "hermes-run-ended", detail: unknown) => void;
  readonly client?: HermesPanelClient;
}

const SESSIONS_SHOWN = 30;
const TITLE_LENGTH = 60;

export class PanelModel {
  readonly #parts: PanelModelParts;
  readonly #client: HermesPanelClient;
  readonly #marks: RunMarks;
  readonly #gone = new AbortController();
  #watching: AbortController | undefined;
  #run: { readonly runId: string; readonly sessionId: string } | undefined;
  #unwatch: (() => void) | undefined;
  /** Another one whenever the person turns to another conversation: what was asked before is late. */
  #view: object = {};
  /** The turn whose context the page is being asked for. */
  #telling: string | undefined;
  /** The run is being told anew: its next words do not continue those that are shown. */
  #anew = false;

  sessions: readonly SessionSummary[] = [];
  models: readonly Model[] = [];
  defaultModel: string | null = null;
  model = "";
  #sessionId: string | undefined;
  turns: readonly Turn[] = [];
  /** The stream is broken and is being opened again. */
  lost = false;
  loading = true;
  /** What went wrong outside of a turn. */
  problem: Problem | undefined;

  constructor(parts: PanelModelParts) {
    this.#parts = parts;
    this.#client =
      parts.client ??
      new HermesPanelClient({
        documentId: parts.documentId,
        workspaceId: parts.workspaceId,
      });
    this.#marks = new RunMarks(parts.workspaceId, parts.documentId);
  }

  /** The conversation that is shown; undefined for one that Hermes does not know yet. */
  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  set sessionId(sessionId: string | undefined) {
    this.#sessionId = sessionId;
    this.#marks.session = sessionId;
  }

  get busy(): boolean {
    const turn = this.turns.at(-1);
    return turn !== undefined && !isOver(turn);
  }

  get stopping(): boolean {
    return this.turns.at(-1)?.state === "stopping";
  }

  /** Loads the conversation this tab was in, else the run that is under way, else the newest one. */
  async start(): Promise<void> {
    this.#unwatch ??= this.#marks.watch((run) => {
      if (!this.busy && (this.sessionId === undefined || this.sessionId === run.sessionId)) {
        this.#adopt(run).catch((error: unknown) => {
          this.#trouble(error);
        });
      }
    });
    const view = this.#view;
    this.loading = true;
    this.problem = undefined;
    this.#parts.changed();
    const signal = this.#gone.signal;
    try {
      const [list] = await Promise.all([
        this.#client.listSessions({ limit: SESSIONS_SHOWN, signal }),
        this.#loadModels(),
      ]);
      this.sessions = list.sessions;
      if (this.#view !== view || this.busy) return;
      const place = this.sessionId ?? this.#remembered();
      const running = place === undefined ? this.#marks.newest : this.#marks.of(place);
      const session = place ?? list.sessions[0]?.sessionId;
      if (running !== undefined) await this.#adopt(running);
      else if (session !== undefined && this.turns.length === 0) await this.#load(session);
    } catch (error) {
      this.#trouble(error);
    } finally {
      if (this.#view === view) this.loading = false;
      this.#parts.changed();
    }
  }

  /** Ends watching; the run goes on. */
  stop(): void {
    this.#unwatch?.();
    this.#unwatch = undefined;
    this.#gone.abort();
    this.#watching?.abort();
  }

  /** A session that Hermes does not know yet: it is made with the first message. */
  newSession(): void {
    this.#leaveRun();
    this.sessionId = undefined;
    this.turns = [];
    this.problem = undefined;
    this.loading = false;
    this.#parts.changed();
  }

  async openSession(sessionId: string): Promise<void> {
    this.#leaveRun();
    const view = this.#view;
    this.problem = undefined;
    this.loading = true;
    this.turns = [];
    this.sessionId = sessionId;
    this.#parts.changed();
    try {
      const running = this.#marks.of(sessionId);
      if (running !== undefined) await this.#adopt(running);
      else await this.#load(sessionId);
    } catch (error) {
      if (this.#view === view) this.#trouble(error);
    } finally {
      if (this.#view === view) this.loading = false;
      this.#parts.changed();
    }
  }

  /**
   * Looks again for the run whose events could not be had any more; it may well go on.
   * @returns whether there is one
   */
  async resume(): Promise<boolean> {
    const run = this.sessionId === undefined ? undefined : this.#marks.of(this.sessionId);
    // Another tab's run in this conversation is no answer to what was asked here.
    if (run === undefined || this.busy || run.asked !== this.turns.at(-1)?.asked) return false;
    try {
      await this.#adopt(run);
    } catch (error) {
      this.#trouble(error);
    }
    return true;
  }

  async refreshSessions(): Promise<void> {
    try {
      const list = await this.#client.listSessions({
        limit: SESSIONS_SHOWN,
        signal: this.#gone.signal,
      });
      this.sessions = list.sessions;
      this.#parts.changed();
    } catch {
      // The list as it was is still of use; whatever is asked next tells the trouble.
    }
  }

  /** Asks Hermes. The page's context goes beside the words, never into them. */
  async send(asked: string, given: Context | Promise<Context>): Promise<void> {
    if (this.busy) return;
    // Shown before the page has told its context: that may take as long as the page likes.
    const turn: Turn = { key: `asked:${Date.now()}`, asked, parts: [], state: "starting" };
    this.problem = undefined;
    this.turns = [...this.turns, turn];
    this.#telling = turn.key;
    this.#parts.changed();
    const signal = this.#gone.signal;
    const view = this.#view;
    const here = (): boolean => this.#view === view && !signal.aborted;
    try {
      const { smaller, ...context } = await given;
      if (this.#telling === turn.key) this.#telling = undefined;
      if (this.#takenBack(turn)) return;
      const selection = context.selectedText ?? "";
      const shown = selection === "" ? {} : { selection };
      if (here()) this.#changeLast(shown);
      let { sessionId } = this;
      if (sessionId === undefined) {
        const made = await this.#client.createSession({ title: titleOf(asked), signal });
        sessionId = made.sessionId;
        if (here()) this.sessionId = sessionId;
        if (this.#takenBack(turn)) return;
      }
      const words = {
        sessionId,
        message: asked,
        ...(this.model === "" ? {} : { model: this.model }),
      };
      const { runId, traceId, shortened } = await this.#startRun(words, context, smaller);
      if (shortened && here()) this.#changeLast({ parts: [{ kind: "note", note: "shortened" }] });
      const run = { runId, sessionId, asked, traceId, ...shown };
      this.#marks.write(run);
      this.#parts.told("hermes-run-started", { runId, sessionId });
      // Who turned to another conversation meanwhile finds this run in its own.
      if (!here()) return;
      if (this.stopping) void this.#stop(run);
      else this.#changeLast({ state: "running" });
      await this.#watch(run);
    } catch (error) {
      if (here()) this.#endLast({ state: "failed", problem: problemOf(error) });
    }
  }

  async #startRun(
    words: Pick<RunRequest, "sessionId" | "message" | "model">,
    context: Omit<Context, "smaller">,
    smaller: Context["smaller"],
  ): Promise<Pick<RunStarted, "runId" | "traceId"> & { readonly shortened: boolean }> {
    const { signal } = this.#gone;
    try {
      const started = await this.#client.startRun({ ...words, ...context }, { signal });
      return { ...started, shortened: false };
    } catch (error) {
      if (smaller === undefined || !isTooLarge(error)) throw error;
      const started = await this.#client.startRun({ ...words, ...smaller }, { signal });
      return { ...started, shortened: true };
    }
  }

  /** Asks Hermes to stop; the run's own end tells when it has. */
  async abort(): Promise<void> {
    const turn = this.turns.at(-1);
    if (turn === undefined || isOver(turn)) return;
    if (this.#telling === turn.key) {
      // Nothing was asked of Hermes yet, and the page may never tell what it shows.
      this.#endLast({ state: "cancelled" });
      return;
    }
    this.#replaceLast({ ...turn, state: "stopping" });
    // A run that is only being started is stopped as soon as it is one.
    if (this.#run !== undefined) await this.#stop(this.#run);
  }

  async #stop(run: { readonly runId: string; readonly sessionId: string }): Promise<void> {
    try {
      await this.#client.abortRun(run.runId, run.sessionId, { signal: this.#gone.signal });
    } catch (error) {
      const now = this.turns.at(-1);
      if (now?.state === "stopping") this.#replaceLast({ ...now, state: "running" });
      this.#trouble(error);
    }
  }

  async approve(approvalId: string, choice: ApprovalChoice): Promise<void> {
    const run = this.#run;
    const turn = this.turns.at(-1);
    if (run === undefined || turn === undefined) return;
    this.#replaceLast(approvalChanged(turn, approvalId, { state: "sending", choice }));
    try {
      const answer = { sessionId: run.sessionId, approvalId, choice };
      await this.#client.approve(run.runId, answer, { signal: this.#gone.signal });
      this.#settle(approvalId, { state: "answered", choice });
    } catch (error) {
      const conflict = error instanceof PanelError && error.code === "hermes_client_conflict";
      // Another tab was quicker, or the time ran out: the run's events tell what became of it.
      this.#settle(approvalId, { state: conflict ? "closed" : "open" });
      if (!conflict) this.#trouble(error);
    }
  }

  /** Stopped before Hermes was asked: then it is not asked. */
  #takenBack(turn: Turn): boolean {
    const now = this.turns.find(({ key }) => key === turn.key);
    if (now?.state === "stopping") this.#endLast({ state: "cancelled" });
    return now !== undefined && (isOver(now) || now.state === "stopping");
  }

  dismiss(): void {
    this.problem = undefined;
    this.#parts.changed();
  }

  // ---- inside ---------------------------------------------------------------------------------

  /** The conversation this tab was in, if there still is one. */
  #remembered(): string | undefined {
    const { session } = this.#marks;
    const listed = this.sessions.some(({ sessionId }) => sessionId === session);
    return session !== undefined && (listed || this.#marks.of(session) !== undefined)
      ? session
      : undefined;
  }

  async #loadModels(): Promise<void> {
    const { models, defaultModel } = await this.#client.listModels({ signal: this.#gone.signal });
    this.models = models;
    this.defaultModel = defaultModel;
    this.#parts.changed();
  }

  async #load(sessionId: string): Promise<void> {
    const view = this.#view;
    const detail = await this.#client.getSession(sessionId, { signal: this.#gone.signal });
    if (this.#view !== view) return;
    this.sessionId = sessionId;
    this.turns = turnsOf(detail.messages);
  }

  /** Shows a run that this page did not start, or started before it was reloaded. */
  async #adopt(run: RunningRun): Promise<void> {
    const view = this.#view;
    this.sessionId = run.sessionId;
    let earlier: readonly Turn[] = [];
    try {
      const detail = await this.#client.getSession(run.sessionId, { signal: this.#gone.signal });
      earlier = turnsOf(detail.messages);
    } catch (error) {
      if (!(error instanceof PanelError) || error.code !== "hermes_client_not_found") {
        if (isFinal(error)) this.#marks.clear(run.runId);
        throw error;
      }
    }
    if (this.#view !== view || this.busy) return;
    // Hermes may have written this turn's beginning already: the run's events tell all of it.
    const begun = earlier.findLastIndex((turn) => turn.asked === run.asked);
    if (begun !== -1 && begun === earlier.length - 1) earlier = earlier.slice(0, begun);
    const { asked, selection } = run;
    this.turns = [
      ...earlier,
      {
        key: `run:${run.runId}`,
        asked,
        ...(selection === undefined ? {} : { selection }),
        parts: [],
        state: "running",
      },
    ];
    this.loading = false;
    this.#parts.changed();
    void this.#watch(run).catch((error: unknown) => {
      if (!this.#gone.signal.aborted) {
        this.#endLast({ state: "failed", problem: problemOf(error) });
      }
    });
  }

  async #watch(run: RunningRun): Promise<void> {
    const { runId, sessionId } = run;
    const watching = new AbortController();
    this.#watching?.abort();
    this.#watching = watching;
    this.#anew = false;
    this.#run = run;
    try {
      for await (const update of this.#client.watchRun(runId, {
        sessionId,
        signal: watching.signal,
      })) {
        if (watching.signal.aborted) return;
        this.#updated(update, run);
        if (update.kind === "gone") {
          await this.#load(sessionId);
        }
        this.#parts.changed();
      }
      this.#marks.clear(runId);
      this.#parts.told("hermes-run-ended", {
        runId,
        sessionId,
        state: this.turns.at(-1)?.state,
      });
      void this.refreshSessions();
    } catch (error) {
      if (watching.signal.aborted) return;
      if (isFinal(error)) this.#marks.clear(runId);
      throw error;
    } finally {
      if (this.#watching === watching) {
        this.#watching = undefined;
        this.#run = undefined;
        this.lost = false;
        this.#parts.changed();
      }
    }
  }

  #updated(
    update: Awaited<ReturnType<ReturnType<HermesPanelClient["watchRun"]>["next"]>>["value"],
    run: RunningRun,
  ): void {
    if (update === undefined) return;
    const turn = this.turns.at(-1);
    switch (update.kind) {
      case "connected":
        this.lost = false;
        return;
      case "lost":
        this.lost = true;
        return;
      case "gone":
        // Its events are past; what became of it stands in the session.
        this.#marks.clear(run.runId);
        return;
      case "replayed":
        this.#anew = true;
        return;
      case "event":
        if (turn === undefined) return;
        this.#replaceLast(
          traced(applied(this.#begun(turn, update.event), update.event), run.traceId),
        );
        if (RUN_END_EVENTS.has(update.event.event)) this.#marks.clear(run.runId);
    }
  }

  /** The turn without what an answer that is told anew tells again. What only comes last stays shown. */
  #begun(turn: Turn, event: RunEvent): Turn {
    if (!this.#anew) return turn;
    // The server that tells anew lost the details of what was open: it asks under another id.
    if (!tellsAgain(turn, event)) {
      return isRunEvent(event, "approval.request") ? withoutOpen(turn) : turn;
    }
    this.#anew = false;
    return { ...turn, parts: turn.parts.filter(({ kind }) => kind === "note") };
  }

  #leaveRun(): void {
    this.#view = {};
    this.#watching?.abort();
    this.#watching = undefined;
    this.#run = undefined;
    this.lost = false;
  }

  #settle(approvalId: string, change: Parameters<typeof approvalChanged>[2]): void {
    const turn = this.turns.at(-1);
    const part = turn?.parts.find((one) => one.kind === "approval" && one.id === approvalId);
    // The event of the answer may have come first and knows better.
    if (turn === undefined || part?.kind !== "approval" || part.state !== "sending") return;
    this.#replaceLast(approvalChanged(turn, approvalId, change));
  }

  #replaceLast(turn: Turn): void {
    this.turns = [...this.turns.slice(0, -1), turn];
    this.#parts.changed();
  }

  #changeLast(change: Partial<Turn>): void {
    const turn = this.turns.at(-1);
    if (turn !== undefined) this.#replaceLast({ ...turn, ...change });
  }

  #endLast(end: Pick<Turn, "state" | "problem">): void {
    const turn = this.turns.at(-1);
    if (turn !== undefined && !isOver(turn)) this.#replaceLast({ ...turn, ...end });
  }

  #trouble(error: unknown): void {
    if (this.#gone.signal.aborted) return;
    this.problem = problemOf(error);
    this.#parts.changed();
  }
}

/** A failed run is found in the logs by the id it was started with. */
function traced(turn: Turn, traceId: string | undefined): Turn {
  const { problem } = turn;
  if (problem === undefined || problem.traceId !== undefined || traceId === undefined) return turn;
  return { ...turn, problem: { ...problem, traceId } };
}

/** Whether an error says that this run is not to be had here at all; any other may pass. */
function isFinal(error: unknown): boolean {
  const final = ["hermes_client_forbidden", "hermes_client_bad_request"];
  return error instanceof PanelError && final.includes(error.code);
}

function isTooLarge(error: unknown): boolean {
  return error instanceof PanelError && error.code === "hermes_client_too_large";
}

function problemOf(error: unknown): Problem {
  if (!(error instanceof PanelError)) {
    return { code: "unknown", message: error instanceof Error ? error.message : "" };
  }
  const { code, message, traceId } = error;
  return { code, message, ...(traceId === undefined ? {} : { traceId }) };
}

function titleOf(asked: string): string {
  const line = asked.trim().split("\n")[0] ?? "";
  const characters = [...line];
  return characters.length <= TITLE_LENGTH
    ? line
    : `${characters.slice(0, TITLE_LENGTH - 1).join("")}…`;
}
