import type { RunEvent, SessionMessage } from "@hermes-mobile/client";
import { describe, expect, test } from "vitest";
import {
  applied,
  approvalChanged,
  isAsking,
  isOver,
  isRefused,
  turnsOf,
  type Turn,
} from "../../panel/transcript.ts";
import { wordsFor } from "../../panel/words.ts";

const START: Turn = { key: "k", asked: "question", parts: [], state: "running" };

function after(...events: ({ readonly event: string } & Record<string, unknown>)[]): Turn {
  return events.reduce(
    (turn, event) => applied(turn, { ...event, run_id: "r" } as RunEvent),
    START,
  );
}

describe("a turn from the events of its run", () => {
  test("puts deltas together and ends with the run", () => {
    const turn = after(
      { event: "message.delta", delta: "Hel" },
      { event: "message.delta", delta: "lo" },
      { event: "run.completed", output: "Hello" },
    );
    expect(turn.parts).toEqual([{ kind: "text", text: "Hello" }]);
    expect(turn.state).toBe("completed");
  });

  test("keeps texts and tools in their order", () => {
    const turn = after(
      { event: "message.delta", delta: "Let me look." },
      { event: "tool.started", tool: "terminal", preview: "ls" },
      { event: "tool.completed", tool: "terminal", duration: 0.4, error: false },
      { event: "message.delta", delta: "\n\nTwo files." },
      { event: "reasoning.available", text: "Two files." },
      { event: "run.completed", output: "Two files." },
    );
    expect(turn.parts.map((part) => part.kind)).toEqual(["text", "tool", "text"]);
    expect(turn.parts[1]).toMatchObject({ state: "done", duration: 0.4, preview: "ls" });
    expect(turn.parts[2]).toEqual({ kind: "text", text: "Two files." });
  });

  test("ends the oldest of two equal tools first", () => {
    const turn = after(
      { event: "tool.started", tool: "terminal", preview: "one" },
      { event: "tool.started", tool: "terminal", preview: "two" },
      { event: "tool.completed", tool: "terminal", error: true },
    );
    expect(turn.parts).toMatchObject([
      { preview: "one", state: "failed" },
      { preview: "two", state: "running" },
    ]);
  });

  test("takes the output of the run where the deltas are not all there", () => {
    const turn = after(
      { event: "replay.truncated" },
      { event: "message.delta", delta: "end" },
      { event: "run.completed", output: "beginning and end, not" },
    );
    expect(turn.parts).toEqual([
      { kind: "note", note: "truncated" },
      { kind: "text", text: "beginning and end, not" },
    ]);
  });

  test("shows an approval once, however often it is replayed, and its outcome", () => {
    const request = { event: "approval.request", approvalId: "a1", command: "rm x" };
    const open = after(request, request);
    expect(open.parts).toHaveLength(1);
    const done = applied(open, {
      event: "approval.responded",
      run_id: "r",
      approvalId: "a1",
      choice: "deny",
    });
    expect(done.parts[0]).toMatchObject({ state: "answered", choice: "deny" });
  });

  test("knows which of two running tools stands still for the person", () => {
    const asked = after(
      { event: "tool.started", tool: "terminal", preview: "sleep 9" },
      { event: "tool.started", tool: "terminal", preview: "rm -rf ..." },
      { event: "approval.request", approvalId: "a1", command: "rm -rf /tmp/x" },
    );
    const asking = (turn: Turn): boolean[] =>
      turn.parts.flatMap((part) => (part.kind === "tool" ? [isAsking(part, turn)] : []));
    expect(asking(asked)).toEqual([false, true]);
    const allowed = approvalChanged(asked, "a1", { state: "answered", choice: "once" });
    expect(asking(allowed)).toEqual([false, false]);
  });

  test("tells a tool that was not allowed from one that failed", () => {
    const asked = [
      { event: "tool.started", tool: "terminal", preview: "rm -rf ..." },
      { event: "approval.request", approvalId: "a1", command: "rm -rf /tmp/x" },
    ];
    const ended = { event: "tool.completed", tool: "terminal", error: true };
    const refused = (...events: ({ event: string } & Record<string, unknown>)[]): boolean[] => {
      const turn = after(...asked, ...events);
      return turn.parts.flatMap((part) => (part.kind === "tool" ? [isRefused(part, turn)] : []));
    };
    const answer = (choice: string) => ({ event: "approval.responded", approvalId: "a1", choice });
    expect(refused(answer("deny"), ended)).toEqual([true]);
    expect(refused(ended, answer("deny"))).toEqual([true]);
    expect(refused({ event: "approval.expired", approvalId: "a1" }, ended)).toEqual([true]);
    expect(refused(answer("once"), ended)).toEqual([false]);
    expect(refused(answer("deny"), { ...ended, error: false })).toEqual([false]);
    expect(refused(ended)).toEqual([false]);
    const again = { event: "approval.request", approvalId: "a2", command: "rm -rf /tmp/x" };
    const yes = { event: "approval.responded", approvalId: "a2", choice: "once" };
    expect(refused(answer("deny"), again, yes, ended)).toEqual([false]);
  });

  test("a tool that ends while the run is being stopped was stopped", () => {
    const stopping: Turn = { ...START, state: "stopping" };
    const events = [
      { event: "tool.started", run_id: "r", tool: "terminal", preview: "sleep 9" },
      { event: "tool.completed", run_id: "r", tool: "terminal", error: true },
    ] as RunEvent[];
    expect(events.reduce(applied, stopping).parts).toMatchObject([{ state: "stopped" }]);
  });

  test("changes no other approval than the one that is named", () => {
    const open = after(
      { event: "approval.request", approvalId: "a1" },
      { event: "approval.request", approvalId: "a2" },
    );
    expect(approvalChanged(open, "a3", { state: "answered" })).toBe(open);
    expect(approvalChanged(open, "a2", { state: "answered" }).parts).toMatchObject([
      { state: "open" },
      { state: "answered" },
    ]);
  });

  test.each([
    ["run.failed", "failed", "failed"],
    ["run.cancelled", "cancelled", "stopped"],
    ["run.interrupted", "interrupted", "stopped"],
  ])("%s leaves nothing open", (event, state, tool) => {
    const turn = after(
      { event: "tool.started", tool: "terminal" },
      { event: "approval.request", approvalId: "a1" },
      { event, error: "It failed." },
    );
    expect(turn.state).toBe(state);
    expect(isOver(turn)).toBe(true);
    expect(turn.parts).toMatchObject([{ state: tool }, { state: "closed" }]);
  });

  test("leaves what it does not know alone", () => {
    expect(after({ event: "something.new" })).toEqual(START);
  });
});

test("a session's messages become turns", () => {
  const message = (
    role: string,
    content: string,
    toolName: string | null = null,
  ): SessionMessage => ({
    messageId: `${role}-${content}`,
    role,
    content,
    toolCallId: null,
    toolName,
    timestamp: null,
    reasoning: null,
  });
  const turns = turnsOf([
    message("user", "one"),
    message("assistant", ""),
    message("tool", "{}", "terminal"),
    message("assistant", "done"),
    message("user", "two"),
    message("system", "not shown"),
  ]);
  expect(turns.map(({ asked }) => asked)).toEqual(["one", "two"]);
  expect(turns[0]?.parts).toEqual([
    { kind: "tool", tool: "terminal", preview: "", state: "done", duration: null },
    { kind: "text", text: "done" },
  ]);
  expect(turns[1]?.parts).toEqual([]);
});

test("the panel's words are those of the first language that is known, however it is written", () => {
  expect(wordsFor(["xx", "ru_RU", "zh"]).send).toBe("Отправить");
  expect(wordsFor(["zh-Hans-CN"]).send).toBe("发送");
  expect(wordsFor(["", "no language!"]).send).toBe("Send");
});
