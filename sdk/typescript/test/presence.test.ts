import { expect, test } from "vitest";
import { pagePresence } from "../src/presence.ts";

function makePage(): EventTarget & {
  document: EventTarget & { visibilityState: string };
  navigator: { onLine: boolean };
} {
  const document = Object.assign(new EventTarget(), { visibilityState: "visible" });
  return Object.assign(new EventTarget(), { document, navigator: { onLine: true } });
}

test("A page pauses while hidden or offline and tells every change until it is no longer asked.", () => {
  const page = makePage();
  const presence = pagePresence(page as never);
  let changes = 0;
  const stop = presence.subscribe(() => {
    changes += 1;
  });
  expect(presence.paused()).toBeUndefined();
  page.navigator.onLine = false;
  page.dispatchEvent(new Event("offline"));
  expect(presence.paused()).toBe("offline");
  page.document.visibilityState = "hidden";
  page.document.dispatchEvent(new Event("visibilitychange"));
  expect(presence.paused()).toBe("hidden");
  stop();
  page.dispatchEvent(new Event("online"));
  page.document.dispatchEvent(new Event("visibilitychange"));

  expect(changes).toBe(2);
});

test("A platform without pages never pauses.", () => {
  const presence = pagePresence({} as never);
  presence.subscribe(() => undefined)();

  expect(presence.paused()).toBeUndefined();
});
