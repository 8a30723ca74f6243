/** Which language is spoken, and its words. */
import { en, type Words } from "./en.ts";
import { ru } from "./ru.ts";
import { zh } from "./zh.ts";

export type { Words };
export type Language = "en" | "ru" | "zh";
export const LANGUAGES: Readonly<Record<Language, Words>> = { en, ru, zh };

/** The first language of the list that the app speaks; English if none. */
export function languageFor(preferred: readonly string[]): Language {
  for (const tag of preferred) {
    const base = tag.toLowerCase().split("-")[0] ?? "";
    if (base in LANGUAGES) return base as Language;
  }
  return "en";
}

export function isLanguage(value: unknown): value is Language {
  return typeof value === "string" && Object.hasOwn(LANGUAGES, value);
}
