/** A conversation as it is shown: turns of parts, made from Hermes' messages and a run's events. Pure. */
import {
  RUN_END_EVENTS,
  isRunEvent,
  type RunEvent,
  type SessionMessage,
} from "@hermes-mobile/client";

export interface TextPart {
  readonly kind: "text";
  readonly text: string;
}
export interface ToolPart {
  readonly kind: "tool";
  readonly tool: string;
  readonly preview: string;
  readonly state: "running" | "done" | "failed" | "stopped";
  /** Seconds; null where it is unknown. */
  readonly duration: number | null;
}
export interface ApprovalPart {
  readonly kind: "approval";
  readonly id: string;
  readonly command: string;
  readonly description: string;
  readonly choices: readonly string[];
  readonly state: "open" | "sending" | "answered" | "expired" | "closed";
  readonly choice?: string;
}
export interface NotePart {
  readonly kind: "note";
  /** `shortened`: the page was too long, and Hermes was given its beginning alone. */
  readonly note: "truncated" | "shortened";
}
export type Part = TextPart | ToolPart | ApprovalPart | NotePart;

export interface Problem {
  readonly code: string;
  readonly message: string;
  readonly traceId?: string;
}

export interface Turn {
  readonly key: string;
  /** The user's words; empty where Hermes spoke unasked. */
  readonly asked: string;
  readonly selection?: string;
  readonly parts: readonly Part[];
  readonly state:
    "starting" | "running" | "stopping" | "completed" | "failed" | "cancelled" | "interrupted";
  readonly problem?: Problem;
}

/** What becomes of a tool whose end was not told. */
const TOOL_STATE_AT_END: Readonly<Record<string, ToolPart["state"]>> = {
  "run.completed": "done",
  "run.cancelled": "stopped",
  "run.interrupted": "stopped",
};
const CHOICES = ["once", "session", "always", "deny"];

export function isOver(turn: Turn): boolean {
  return !["starting", "running", "stopping"].includes(turn.state);
}

/** What one event of the run makes of its turn. Unknown events change nothing. */
export function applied(turn: Turn, event: RunEvent): Turn {
  if (isRunEvent(event, "message.delta")) {
    return { ...turn, parts: withText(turn.parts, event.delta) };
  }
  if (isRunEvent(event, "tool.started")) {
    const tool: ToolPart = {
      kind: "tool",
      tool: event.tool,
      preview: event.preview ?? "",
      state: "running",
      duration: null,
    };
    return { ...turn, parts: [...turn.parts, tool] };
  }
  if (isRunEvent(event, "tool.completed")) {
    const failed = event.error !== undefined && event.error !== null && event.error !== false;
    const state = !failed ? "done" : turn.state === "stopping" ? "stopped" : "failed";
    return { ...turn, parts: toolEnded(turn.parts, event.tool, state, event.duration ?? null) };
  }
  if (isRunEvent(event, "approval.request")) {
    // A replay shows a request again; what was answered meanwhile follows in the replay as well.
    if (turn.parts.some((part) => part.kind === "approval" && part.id === event.approvalId)) {
      return turn;
    }
    const approval: ApprovalPart = {
      kind: "approval",
      id: event.approvalId,
      command: event.command ?? "",
      description: event.description ?? "",
      choices: event.choices?.filter((choice) => CHOICES.includes(choice)) ?? CHOICES,
      state: "open",
    };
    return { ...turn, parts: [...turn.parts, approval] };
  }
  if (isRunEvent(event, "approval.responded")) {
    const choice = event.choice;
    return approvalChanged(turn, event.approvalId, {
      state: "answered",
      ...(choice === undefined ? {} : { choice }),
    });
  }
  if (event.event === "approval.expired") {
    const id = (event as { approvalId?: unknown }).approvalId;
    return approvalChanged(turn, typeof id === "string" ? id : undefined, { state: "expired" });
  }
  if (isRunEvent(event, "replay.truncated")) {
    const note: NotePart = { kind: "note", note: "truncated" };
    return turn.parts.some((part) => part.kind === "note" && part.note === "truncated")
      ? turn
      : { ...turn, parts: [note, ...turn.parts] };
  }
  if (isRunEvent(event, "abort.started")) {
    return isOver(turn) ? turn : { ...turn, state: "stopping" };
  }
  return RUN_END_EVENTS.has(event.event) ? ended(turn, event) : turn;
}

/** Changes one approval of a turn; without an id, the oldest open one. */
export function approvalChanged(
  turn: Turn,
  id: string | undefined,
  change: Partial<Pick<ApprovalPart, "state" | "choice">>,
): Turn {
  const open = (part: Part): boolean =>
    part.kind === "approval" && (part.state === "open" || part.state === "sending");
  const index = turn.parts.findIndex((part) =>
    id === undefined ? open(part) : part.kind === "approval" && part.id === id,
  );
  const part = turn.parts[index];
  if (part?.kind !== "approval") return turn;
  const parts = [...turn.parts];
  parts[index] = { ...part, ...change };
  return { ...turn, parts };
}

/** The turn with every card closed that still waits for an answer. */
export function withoutOpen(turn: Turn): Turn {
  const parts = turn.parts.map((part): Part => {
    const open = part.kind === "approval" && (part.state === "open" || part.state === "sending");
    return open ? { ...part, state: "closed" } : part;
  });
  return { ...turn, parts };
}

function ended(turn: Turn, event: RunEvent): Turn {
  let parts = withoutOpen(turn).parts.map((part): Part => {
    if (part.kind === "tool" && part.state === "running") {
      return { ...part, state: TOOL_STATE_AT_END[event.event] ?? "failed" };
    }
    return part;
  });
  if (isRunEvent(event, "run.completed")) {
    parts = withOutput(parts, event.output);
    return { ...turn, parts, state: "completed" };
  }
  if (isRunEvent(event, "run.failed")) {
    return {
      ...turn,
      parts,
      state: "failed",
      problem: { code: "run_failed", message: event.error },
    };
  }
  return { ...turn, parts, state: event.event === "run.cancelled" ? "cancelled" : "interrupted" };
}

function withText(parts: readonly Part[], delta: string): readonly Part[] {
  const last = parts.at(-1);
  if (last?.kind === "text") {
    return [...parts.slice(0, -1), { kind: "text", text: last.text + delta }];
  }
  // Text after a tool begins with the border to the text before it.
  const text = delta.replace(/^\s+/, "");
  return text === "" ? parts : [...parts, { kind: "text", text }];
}

/** The run's own last message wins over what was pieced together from deltas, if they differ. */
function withOutput(parts: readonly Part[], output: string): Part[] {
  const said = output.trim();
  const texts = parts.filter((part) => part.kind === "text");
  const whole = texts.map((part) => part.text).join("\n\n");
  if (said === "" || whole.trimEnd().endsWith(said)) return [...parts];
  const last = parts.at(-1);
  const begun = parts.findLastIndex((part) => part.kind === "text");
  const beginning = parts[begun];
  if (beginning?.kind === "text" && said.startsWith(beginning.text.trim())) {
    return parts.map((part, index) => (index === begun ? { kind: "text", text: output } : part));
  }
  const kept = last?.kind === "text" ? parts.slice(0, -1) : parts;
  return [...kept, { kind: "text", text: output }];
}

/** Whether a tool has begun but stands still until an open card about its command is answered. */
export function isAsking(tool: ToolPart, turn: Turn): boolean {
  return tool.state === "running" && cardsOf(tool, turn).some(({ state }) => state === "open");
}

/** Whether a tool did not run because its command was denied, or nobody allowed it in time. */
export function isRefused(tool: ToolPart, turn: Turn): boolean {
  const card = cardsOf(tool, turn).at(-1);
  if (tool.state !== "failed" || card === undefined) return false;
  return card.state === "expired" || (card.state !== "open" && card.choice === "deny");
}

/** The cards about a tool's command; its preview may be cut. */
function cardsOf(tool: ToolPart, turn: Turn): ApprovalPart[] {
  const begin = tool.preview.replace(/(?:…|\.{3})$/, "");
  if (begin === "") return [];
  return turn.parts.filter(
    (part): part is ApprovalPart => part.kind === "approval" && part.command.startsWith(begin),
  );
}

/** Whether an event of a run that is told anew tells again what the turn shows already. */
export function tellsAgain(turn: Turn, event: RunEvent): boolean {
  if (isRunEvent(event, "message.delta") || isRunEvent(event, "tool.started")) return true;
  // A request that is not known here is one whose details were lost: nothing before it comes again.
  if (!isRunEvent(event, "approval.request")) return false;
  return turn.parts.some((part) => part.kind === "approval" && part.id === event.approvalId);
}

/** Events name tools without an id: the one that has run longest has ended. */
function toolEnded(
  parts: readonly Part[],
  tool: string,
  state: ToolPart["state"],
  duration: number | null,
): readonly Part[] {
  const index = parts.findIndex(
    (part) => part.kind === "tool" && part.tool === tool && part.state === "running",
  );
  const part = parts[index];
  if (part?.kind !== "tool") return parts;
  const changed = [...parts];
  changed[index] = { ...part, state, duration };
  return changed;
}

/** The turns of a session as Hermes keeps it. */
export function turnsOf(messages: readonly SessionMessage[]): Turn[] {
  const turns: Turn[] = [];
  for (const message of messages) {
    if (message.role === "user") {
      turns.push({
        key: `message:${message.messageId}`,
        asked: message.content,
        parts: [],
        state: "completed",
      });
      continue;
    }
    const part = partOf(message);
    if (part === undefined) continue;
    const turn = turns.at(-1) ?? {
      key: `message:${message.messageId}`,
      asked: "",
      parts: [],
      state: "completed" as const,
    };
    if (turns.length === 0) turns.push(turn);
    turns[turns.length - 1] = { ...turn, parts: [...turn.parts, part] };
  }
  return turns;
}

function partOf(message: SessionMessage): Part | undefined {
  if (message.role === "assistant" && message.content.trim() !== "") {
    return { kind: "text", text: message.content };
  }
  if (message.role === "tool") {
    const tool = message.toolName ?? "";
    return { kind: "tool", tool, preview: "", state: "done", duration: null };
  }
  return undefined;
}
