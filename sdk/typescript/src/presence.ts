/** Whether it makes sense to try at all: is the page seen, is the machine online? */

export interface Presence {
  /** Why attempts should pause, or `undefined` to go on. */
  paused(): "hidden" | "offline" | undefined;
  /** Calls back on every change; returns how to stop that. */
  subscribe(changed: () => void): () => void;
}

interface EventSource {
  addEventListener(type: string, listener: () => void): void;
  removeEventListener(type: string, listener: () => void): void;
}

function asEventSource(value: unknown): EventSource | undefined {
  const candidate = value as Partial<EventSource> | null | undefined;
  return typeof candidate?.addEventListener === "function" &&
    typeof candidate.removeEventListener === "function"
    ? (candidate as EventSource)
    : undefined;
}

/**
 * Page visibility and `navigator.onLine` where the platform has them. Elsewhere (Node, React
 * Native) it never pauses; a React Native app gives a presence of its own or calls `networkChanged()`.
 */
export function pagePresence(scope: typeof globalThis = globalThis): Presence {
  const page = (scope as { document?: { visibilityState?: string } }).document;
  const pageEvents = asEventSource(page);
  const windowEvents = asEventSource(scope);
  return {
    paused() {
      if (page?.visibilityState === "hidden") return "hidden";
      const online = (scope as { navigator?: { onLine?: boolean } }).navigator?.onLine;
      return online === false ? "offline" : undefined;
    },
    subscribe(changed) {
      pageEvents?.addEventListener("visibilitychange", changed);
      windowEvents?.addEventListener("online", changed);
      windowEvents?.addEventListener("offline", changed);
      return () => {
        pageEvents?.removeEventListener("visibilitychange", changed);
        windowEvents?.removeEventListener("online", changed);
        windowEvents?.removeEventListener("offline", changed);
      };
    },
  };
}
