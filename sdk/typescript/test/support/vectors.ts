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
