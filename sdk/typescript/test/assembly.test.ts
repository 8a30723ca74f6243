import { expect, test } from "vitest";
import { MediaAssembly, MessageAssembly, type MediaStep } from "../src/assembly.ts";
import type { AgentMessage } from "../src/events.ts";
import type { MediaOutFrame, MessageFrame } from "../src/protocol.ts";

function frame(text: string, index = 0, total = 1, more: Partial<MessageFrame> = {}): MessageFrame {
  return { t: "message", id: "m1", text, chunk: { index, total }, final: false, ...more };
}

/** The texts that are shown, one per frame; undefined where nothing new is shown. */
function shown(assembly: MessageAssembly, frames: readonly MessageFrame[]): (string | undefined)[] {
  return frames.map((each) => (assembly.add(each) as AgentMessage | undefined)?.text);
}

test("A long answer grows chunk by chunk and is joined character for character.", () => {
  const assembly = new MessageAssembly();

  expect(
    shown(assembly, [
      frame("one ", 0, 3),
      frame("two ", 1, 3),
      frame("three", 2, 3, { final: true }),
    ]),
  ).toEqual(["one ", "one two ", "one two three"]);
});

test("Completeness, finality, revision and reply are told.", () => {
  const assembly = new MessageAssembly();

  expect(assembly.add(frame("a", 0, 2, { reply_to: "q" }))).toEqual({
    id: "m1",
    text: "a",
    final: false,
    complete: false,
    revision: 1,
    replyTo: "q",
  });
  expect(assembly.add(frame("b", 1, 2, { final: true }))).toEqual({
    id: "m1",
    text: "ab",
    final: true,
    complete: true,
    revision: 2,
    replyTo: "q",
  });
});

test("Chunks of the first revision in a wrong order still give the whole text.", () => {
  const assembly = new MessageAssembly();

  expect(
    shown(assembly, [frame("b", 1, 2), frame("a", 0, 2), frame("b", 1, 2, { final: true })]),
  ).toEqual([undefined, "ab", "ab"]);
});

test("An edit that resends all chunks is shown once, whole.", () => {
  const assembly = new MessageAssembly();
  assembly.connected(false);
  const edit = { edit: true };

  expect(
    shown(assembly, [
      frame("1 "),
      frame("1 2 ", 0, 1, edit),
      frame("1 2 3 ", 0, 2, edit),
      frame("4", 1, 2, edit),
      frame("A B ", 0, 2, edit),
      frame("C", 1, 2, { ...edit, final: true }),
    ]),
  ).toEqual(["1 ", "1 2 ", undefined, "1 2 3 4", undefined, "A B C"]);
});

test("A shorter revision drops the chunks from `total` on.", () => {
  const assembly = new MessageAssembly();

  expect(
    shown(assembly, [
      frame("a", 0, 2),
      frame("b", 1, 2),
      frame("z", 0, 1, { edit: true, final: true }),
    ]),
  ).toEqual(["a", "ab", "z"]);
});

test("Partial edits: changed chunks alone revise the text.", () => {
  const assembly = new MessageAssembly();
  assembly.connected(true);
  const edit = { edit: true };

  expect(
    shown(assembly, [
      frame("a", 0, 2),
      frame("b", 1, 2),
      frame("B", 1, 2, edit),
      frame("A", 0, 2, edit),
      frame("C", 2, 3, edit),
      frame("C", 2, 3, { ...edit, final: true }),
    ]),
  ).toEqual(["a", "ab", "aB", "AB", "ABC", "ABC"]);
});

test("Partial edits: a grown total whose new chunk is still missing is not shown.", () => {
  const assembly = new MessageAssembly();
  assembly.connected(true);

  expect(
    shown(assembly, [
      frame("ab"),
      frame("a", 0, 2, { edit: true }),
      frame("bc", 1, 2, { edit: true }),
    ]),
  ).toEqual(["ab", undefined, "abc"]);
});

test("After a reconnect a message is continued or restated under its id, never doubled.", () => {
  for (const partial of [false, true]) {
    const assembly = new MessageAssembly();
    assembly.connected(partial);
    shown(assembly, [frame("a", 0, 2), frame("b", 1, 2)]);
    assembly.connected(partial);

    expect(
      shown(assembly, [
        frame("x", 0, 3, { edit: true }),
        frame("y", 1, 3, { edit: true }),
        frame("z", 2, 3, { edit: true, final: true }),
      ]),
    ).toEqual([undefined, undefined, "xyz"]);
  }
  const cut = new MessageAssembly();
  cut.connected(false);
  shown(cut, [frame("a", 0, 2)]);
  cut.connected(false);

  expect(shown(cut, [frame("b", 1, 2, { final: true })])).toEqual(["ab"]);
});

test("What was told already is not told again, and a restated final message stays final.", () => {
  const assembly = new MessageAssembly();
  assembly.add(frame("a", 0, 1, { final: true }));

  expect(assembly.add(frame("a", 0, 1, { final: true }))).toBeUndefined();
  expect(assembly.add(frame("a", 0, 1, { edit: true }))).toBeUndefined();
});

test("A final frame whose siblings were lost is shown with what is there.", () => {
  const assembly = new MessageAssembly();

  expect(assembly.add(frame("end", 2, 3, { final: true }))).toMatchObject({
    text: "end",
    final: true,
    complete: false,
  });
});

test("An absurd number of chunks is refused before memory is spent.", () => {
  expect(new MessageAssembly().add(frame("a", 0, 1e9))).toEqual(
    expect.stringContaining("1000000000"),
  );
});

test("The number of remembered messages is bounded.", () => {
  const assembly = new MessageAssembly(2);
  for (const id of ["a", "b", "c"]) assembly.add({ ...frame(id), id });

  expect(assembly.add({ ...frame("more", 1, 2, { edit: true }), id: "c" })).toMatchObject({
    text: "cmore",
  });
  expect(assembly.add({ ...frame("more", 1, 2, { edit: true }), id: "a" })).toBeUndefined();
});

// ---- files ------------------------------------------------------------------------------------

function part(
  text: string,
  index: number,
  parts: number,
  more: Partial<MediaOutFrame> = {},
): MediaOutFrame {
  return {
    t: "media",
    id: "f1",
    kind: "document",
    mime: "text/plain",
    filename: "a.txt",
    part: index,
    parts,
    final: index === parts - 1,
    size: 6,
    data: Buffer.from(text).toString("base64"),
    ...more,
  };
}

const kinds = (steps: readonly MediaStep[]): string[] =>
  steps.map((step) => (step.kind === "failed" ? step.failure.code : step.kind));

test("Parts become a Blob in the order of their numbers.", async () => {
  const assembly = new MediaAssembly({ as: "blob" });

  expect(assembly.add(part("ab", 0, 3, { caption: "Hi", reply_to: "m" }))).toEqual([
    {
      kind: "progress",
      progress: { id: "f1", kind: "document", filename: "a.txt", received: 2, size: 6 },
    },
  ]);
  assembly.add(part("cd", 1, 3));
  const [step] = assembly.add(part("ef", 2, 3));

  expect(step).toMatchObject({
    kind: "media",
    media: { id: "f1", mime: "text/plain", filename: "a.txt", size: 6, caption: "Hi" },
  });
  const blob = step?.kind === "media" ? step.media.blob : undefined;
  expect(await blob?.text()).toBe("abcdef");
  expect(blob?.type).toBe("text/plain");
});

test("Parts in any order and repeated parts give the same file, as bytes where asked.", () => {
  const assembly = new MediaAssembly({ as: "bytes" });
  const frames = [
    part("ef", 2, 3, { final: false }),
    part("ab", 0, 3),
    part("ab", 0, 3),
    part("cd", 1, 3),
  ];
  const last = frames.flatMap((each) => assembly.add(each)).at(-1);

  expect(last?.kind === "media" && Buffer.from(last.media.bytes ?? []).toString()).toBe("abcdef");
});

test("A file given by its address is passed on; only web addresses are.", () => {
  const assembly = new MediaAssembly();
  const linked = (url: string): MediaStep[] => {
    const { data: _none, ...rest } = part("", 0, 1, { id: url, url });
    return assembly.add(rest);
  };

  expect(linked("https://files.example.com/a.txt")).toMatchObject([
    { kind: "media", media: { url: "https://files.example.com/a.txt" } },
  ]);
  expect(kinds(linked("javascript:alert(1)"))).toEqual(["bad_url"]);
  expect(kinds(linked("file:///etc/passwd"))).toEqual(["bad_url"]);
});

test.each<[string, readonly MediaOutFrame[]]>([
  ["too_big", [part("ab", 0, 1, { size: 9 * 1024 * 1024 })]],
  ["too_big", [part("abcdefg", 0, 1)]],
  ["too_big", [part("abcd", 0, 2), part("efg", 1, 2)]],
  ["size_mismatch", [part("abc", 0, 1)]],
  ["bad_data", [part("", 0, 1, { data: "*" })]],
  ["incomplete", [part("ab", 0, 3), part("ef", 2, 3)]],
])("A file that is wrong fails once: %s (%#).", (code, frames) => {
  const assembly = new MediaAssembly();
  const steps = frames.flatMap((each) => assembly.add(each));

  expect(kinds(steps).at(-1)).toBe(code);
});

test("The parts after a failure are ignored; a new start is a new file.", () => {
  const assembly = new MediaAssembly();
  assembly.add(part("abcdefghi", 0, 3));

  expect(assembly.add(part("cd", 1, 3))).toEqual([]);
  expect(assembly.add(part("ef", 2, 3))).toEqual([]);
  expect(kinds(assembly.add(part("abcdef", 0, 1)))).toEqual(["media"]);
});

test("A file that was told already is not told again.", () => {
  const assembly = new MediaAssembly();

  expect(kinds(assembly.add(part("abcdef", 0, 1)))).toEqual(["media"]);
  expect(assembly.add(part("abcdef", 0, 1))).toEqual([]);
});

test("A file begun again in another cut replaces the first try.", () => {
  const assembly = new MediaAssembly();
  assembly.add(part("ab", 0, 3));

  expect(kinds([...assembly.add(part("abc", 0, 2)), ...assembly.add(part("def", 1, 2))])).toEqual([
    "progress",
    "media",
  ]);
});

test("An empty file and a one-frame file are files.", () => {
  const assembly = new MediaAssembly();

  expect(kinds(assembly.add(part("", 0, 1, { size: 0 })))).toEqual(["media"]);
  expect(kinds(assembly.add(part("abcdef", 0, 1, { id: "f2" })))).toEqual(["media"]);
});

test("Only so many files are in progress; the one begun first makes room.", () => {
  const assembly = new MediaAssembly({ maxOpen: 2 });
  assembly.add(part("ab", 0, 3, { id: "a" }));
  assembly.add(part("ab", 0, 3, { id: "b" }));

  expect(assembly.add(part("ab", 0, 3, { id: "c" }))).toMatchObject([
    { kind: "failed", failure: { id: "a", code: "crowded_out" } },
    { kind: "progress" },
  ]);
});
