/** Numbers and times for people. */

/** `591` -> `591 B`, `1536` -> `2 kB`; the space does not break. */
export function bytes(count: number, language: string): string {
  const units = ["byte", "kilobyte", "megabyte"] as const;
  const step = count < 1024 ? 0 : count < 1024 * 1024 ? 1 : 2;
  return new Intl.NumberFormat(language, {
    style: "unit",
    unit: units[step] ?? "byte",
    unitDisplay: step === 0 ? "narrow" : "short",
    maximumFractionDigits: step === 2 ? 1 : 0,
  })
    .format(count / 1024 ** step)
    .replace(/(\d)\s?(?=\p{L})/u, "$1\u00a0");
}

/** Milliseconds -> `4:05`. */
export function minutes(milliseconds: number): string {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  const rest = String(seconds % 60).padStart(2, "0");
  return `${Math.floor(seconds / 60)}:${rest}`;
}

export function clock(at: number, language: string): string {
  return new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" }).format(at);
}

export function dayKey(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${date.getMonth()}-${date.getDate()}`;
}

export function day(
  at: number,
  now: number,
  language: string,
  words: { today: string; yesterday: string },
): string {
  if (dayKey(at) === dayKey(now)) return words.today;
  if (dayKey(at) === dayKey(now - 86_400_000)) return words.yesterday;
  const sameYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return new Intl.DateTimeFormat(language, {
    weekday: "long",
    day: "numeric",
    month: "long",
    ...(sameYear ? {} : { year: "numeric" }),
  }).format(at);
}
