import { expect, test } from "vitest";
import { doorAddress } from "../src/address.ts";

test.each([
  ["wss://agent.example.com/ws", "wss://agent.example.com/ws"],
  ["https://agent.example.com", "wss://agent.example.com/ws"],
  ["http://127.0.0.1:8787/", "ws://127.0.0.1:8787/ws"],
  ["ws://[::1]:8787/ws", "ws://[::1]:8787/ws"],
  [" WSS://agent.example.com/hermes/ws ", "wss://agent.example.com/hermes/ws"],
  ["wss://agent.example.com/ws?node=2", "wss://agent.example.com/ws?node=2"],
  ["wss://agent.example.com/ws?keyboard=%7A", "wss://agent.example.com/ws?keyboard=%7A"],
])("%s becomes %s.", (given, expected) => {
  expect(doorAddress(given)).toBe(expected);
});

test.each([
  "",
  "agent.example.com",
  "ftp://agent.example.com",
  "javascript:alert(1)",
  "wss:///ws",
  "wss://agent.example.com/ws?token=secret",
  "wss://agent.example.com/ws?a=1&access_token=secret",
  "wss://agent.example.com/ws?%74oken=secret",
  "wss://agent.example.com/ws?a=%zz&auth_token=secret",
  "wss://agent.example.com/ws?API-Key=secret",
  "wss://agent.example.com/ws?password=secret",
  "wss://user:secret@agent.example.com/ws",
  "wss://agent.example.com/ws#secret",
])("%j is refused, and the refusal does not repeat it.", (given) => {
  expect(() => doorAddress(given)).toThrow(expect.objectContaining({ code: "bad_url" }));
  try {
    doorAddress(given);
  } catch (error) {
    expect((error as Error).message).not.toContain("secret");
  }
});
