import { describe, expect, test } from "vitest";
import { stateInMessage } from "../../avatar/state.ts";
import { loadAgents, loadChoices, newDeviceId, saveAgents, type Agent } from "../../chat/agents.ts";
import { readConnectionCode } from "../../chat/connection-code.ts";
import { EntryList, keyOf } from "../../chat/entries.ts";
import { bytes, day, minutes } from "../../chat/format.ts";
import { wavOf } from "../../chat/wav.ts";
import { LANGUAGES, languageFor } from "../../chat/words/index.ts";
import { en as panelWords, wordsFor } from "../../panel/words.ts";

describe("a connection code", () => {
  test("is read with all it holds", () => {
    const code = {
      hermes_mobile: 1,
      url: "wss://a.example/ws",
      token: "t",
      name: "A",
      device: "d",
    };
    expect(readConnectionCode(JSON.stringify(code))).toEqual({
      url: "wss://a.example/ws",
      token: "t",
      name: "A",
      device: "d",
    });
  });

  test("may be a bare address, without a token", () => {
    expect(readConnectionCode(" ws://192.168.1.5:8787/ws\n")?.url).toBe("ws://192.168.1.5:8787/ws");
  });

  test.each([
    "",
    "hello",
    "{}",
    "[]",
    "null",
    '{"url":"wss://a/ws"}',
    "wss://a/ws?token=x",
    "https://a.example",
  ])("is not %j", (text) => {
    expect(readConnectionCode(text)).toBeUndefined();
  });
});

describe("entries", () => {
  const said = (id: string, text: string) =>
    ({ type: "said", key: keyOf.said(id), id, text, final: false, complete: true }) as const;

  test("keep their places when they change", () => {
    const list = new EntryList();
    list.put(said("a", "1"), 10);
    list.put(said("b", "2"), 20);
    list.put(said("a", "1 and more"), 30);
    expect(list.all().map((entry) => entry.key)).toEqual(["said:a", "said:b"]);
    expect(list.get("said:a")).toMatchObject({ text: "1 and more", at: 10, order: 1 });
  });

  test("go on after what was restored", () => {
    const list = new EntryList();
    list.restore({ ...said("old", "x"), order: 41, at: 1 });
    expect(list.put(said("new", "y"), 2).order).toBe(42);
  });
});

describe("what the browser keeps", () => {
  const storage = (content: Record<string, string>): Storage =>
    ({
      getItem: (key: string) => content[key] ?? null,
      setItem: (key: string, value: string) => {
        content[key] = value;
      },
    }) as unknown as Storage;

  test("comes back as it was", () => {
    const agent: Agent = {
      id: "1",
      name: "A",
      url: "ws://a/ws",
      token: "t",
      deviceId: newDeviceId(),
    };
    const kept = storage({});
    expect(saveAgents(kept, [agent])).toBe(true);
    expect(loadAgents(kept)).toEqual([agent]);
  });

  test("may be damaged", () => {
    const kept = storage({ "hermes-chat:agents": '[{"id":1},null]', "hermes-chat:choices": "{" });
    expect(loadAgents(kept)).toEqual([]);
    expect(loadChoices(kept)).toEqual({
      language: "auto",
      theme: "auto",
      userName: "",
      current: "",
    });
  });

  test("holds a device id that the door takes", () => {
    expect(newDeviceId()).toMatch(/^web-[0-9a-f]{12}$/);
  });
});

test("a WAV file says what it holds", () => {
  const wav = wavOf(Float32Array.from([0, 1, -1, 2]), 16_000);
  const view = new DataView(wav.buffer);
  expect(String.fromCharCode(...wav.subarray(0, 4), ...wav.subarray(8, 12))).toBe("RIFFWAVE");
  expect(view.getUint32(4, true)).toBe(wav.length - 8);
  expect(view.getUint32(24, true)).toBe(16_000);
  expect(view.getUint32(40, true)).toBe(8);
  expect([0, 1, 2, 3].map((index) => view.getInt16(44 + 2 * index, true))).toEqual([
    0, 32_767, -32_767, 32_767,
  ]);
});

test("numbers and times are for people", () => {
  expect(minutes(245_000)).toBe("4:05");
  expect(minutes(-5)).toBe("0:00");
  expect(bytes(591, "en")).toBe("591\u00a0B");
  expect(bytes(1536, "en")).toBe("2\u00a0kB");
  expect(bytes(8 * 1024 * 1024, "en")).toBe("8\u00a0MB");
  const noon = new Date(2026, 4, 14, 12).getTime();
  const words = { today: "Today", yesterday: "Yesterday" };
  expect(day(noon, noon, "en", words)).toBe("Today");
  expect(day(noon - 86_400_000, noon, "en", words)).toBe("Yesterday");
  expect(day(noon - 3 * 86_400_000, noon, "en", words)).toBe("Monday, May 11");
});

describe("languages", () => {
  test("the first that is spoken is taken", () => {
    expect(languageFor(["fr-FR", "ru-RU", "en"])).toBe("ru");
    expect(languageFor(["zh-Hant-TW"])).toBe("zh");
    expect(languageFor(["fr"])).toBe("en");
    expect(wordsFor(["fr", "ru"]).send).toBe("Отправить");
    expect(wordsFor([])).toBe(panelWords);
  });

  test("every text is there in every language", () => {
    const shape = (value: unknown): unknown =>
      typeof value === "object" && value !== null && !Array.isArray(value)
        ? Object.fromEntries(Object.entries(value).map(([key, part]) => [key, shape(part)]))
        : typeof value;
    const [first, ...others] = [
      ...Object.values(LANGUAGES),
      ...["en", "ru", "zh"].map((tag) => wordsFor([tag])),
    ];
    const chat = others.slice(0, 2);
    const panel = others.slice(2);
    for (const words of chat) expect(shape(words)).toEqual(shape(first));
    for (const words of panel) expect(shape(words)).toEqual(shape(panelWords));
  });
});

test.each([
  ["thinking", "thinking"],
  ["unheard of", "idle"],
  ['"speaking"', "speaking"],
  [{ state: 5 }, "idle"],
  [{ other: 1 }, undefined],
  [null, undefined],
  [42, undefined],
  ["{broken", undefined],
])("the avatar takes the message %j as %j", (message, state) => {
  expect(stateInMessage(message)).toBe(state);
});
