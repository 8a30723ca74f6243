import { readFileSync, readdirSync } from "node:fs";

const CONTRACTS = new URL("../../../../contracts/", import.meta.url);

/** One file of the contracts, which the Python tests read too. */
export function vectors(contract: string, name: string): unknown {
  return JSON.parse(readFileSync(new URL(`${contract}/vectors/${name}`, CONTRACTS), "utf8"));
}

export function vectorNames(contract: string): string[] {
  return readdirSync(new URL(`${contract}/vectors/`, CONTRACTS)).filter((name) =>
    name.endsWith(".json"),
  );
}

/** Writes out the shorthands of the vectors: `$repeat`, `$zeros`, `$concat`, `$base64`, `$card`. */
export function expanded(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(expanded);
  if (typeof value !== "object" || value === null) return value;
  const short = value as Readonly<Record<string, unknown>>;
  if (typeof short["$repeat"] === "string")
    return short["$repeat"].repeat(short["times"] as number);
  if (typeof short["$zeros"] === "number") return Buffer.alloc(short["$zeros"]).toString("base64");
  if (Array.isArray(short["$concat"])) return short["$concat"].map(expanded).join("");
  if (typeof short["$base64"] === "string") return Buffer.from(short["$base64"]).toString("base64");
  if (short["$card"] === true) return "p-1";
  return Object.fromEntries(Object.entries(short).map(([key, inner]) => [key, expanded(inner)]));
}
