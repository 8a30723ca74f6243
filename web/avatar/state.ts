/** Which states a face has, and what counts as one of them. */

export type AvatarState = "idle" | "thinking" | "speaking";

/** Whatever is no state this page knows is `idle`. */
export function stateOf(value: unknown): AvatarState {
  return value === "thinking" || value === "speaking" ? value : "idle";
}

/**
 * The state a message names: the state itself, an object with `state` (a frame
 * `{"t":"avatar","state":"thinking"}` fits as it is), or either as JSON, which is how React Native
 * posts. Undefined for a message that is about something else.
 */
export function stateInMessage(data: unknown): AvatarState | undefined {
  if (typeof data === "string") {
    const text = data.trim();
    if (!text.startsWith("{") && !text.startsWith('"')) return stateOf(text);
    try {
      return stateInMessage(JSON.parse(text) as unknown);
    } catch {
      return undefined;
    }
  }
  if (typeof data !== "object" || data === null || !("state" in data)) return undefined;
  return stateOf(data.state);
}
