import { readFileSync } from "node:fs";

export interface Sample {
  readonly language: string;
  readonly code: string;
  /** From a comment above the block: `<!-- file: NAME -->` or `<!-- run: NAME -->`. */
  readonly file?: string;
}

const BLOCK =
  /(?:<!-- (?:file|run): (?<file>\S+) -->\s*)?```(?<language>\w+)\n(?<code>[^]*?)\n```/g;

/** The code blocks of a page of the checkout, in order. */
export function samplesOf(page: string): Sample[] {
  const text = readFileSync(new URL(`../../../../${page}`, import.meta.url), "utf8");
  return [...text.matchAll(BLOCK)].map(({ groups }) => ({
    language: groups?.["language"] ?? "",
    code: groups?.["code"] ?? "",
    ...(groups?.["file"] === undefined ? {} : { file: groups["file"] }),
  }));
}

export function sample(page: string, file: string): string {
  const found = samplesOf(page).find((each) => each.file === file);
  if (found === undefined) throw new Error(`${page} has no sample ${file}`);
  return found.code;
}
