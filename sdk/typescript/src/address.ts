/** The address of the door, checked and brought into one form. */
import { HermesError } from "./errors.ts";

const ADDRESS = /^(wss?|https?):\/\/([^/?#\s]+)(\/[^?#\s]*)?(\?[^#\s]*)?(#.*)?$/i;
/** Parameters by whose names people put secrets into addresses. */
const SECRET_PARAMETER = /[?&;](?:[\w.-]*(?:token|secret|passw(?:or)?d)|(?:x-)?api[_-]?key)=/i;

/**
 * `https://agent.example.com` -> `wss://agent.example.com/ws`.
 *
 * Written with a pattern because React Native's `URL` lacks most of its parts.
 *
 * @throws HermesError `bad_url`, with what to write instead
 */
export function doorAddress(url: string): string {
  const match = ADDRESS.exec(url.trim());
  if (match === null) {
    throw new HermesError(
      "bad_url",
      "The agent's address must look like wss://agent.example.com/ws.",
    );
  }
  const [, scheme = "", host = "", path = "", query = "", fragment = ""] = match;
  if (host.includes("@") || fragment !== "" || SECRET_PARAMETER.test(decoded(query))) {
    throw new HermesError(
      "bad_url",
      "The agent's address must hold no token and no login: addresses end up in logs. Pass the token as `token`.",
    );
  }
  const secure = scheme.toLowerCase() === "wss" || scheme.toLowerCase() === "https";
  return `${secure ? "wss" : "ws"}://${host}${path === "" || path === "/" ? "/ws" : path}${query}`;
}

/** A name that is written in percents is the same name. */
function decoded(query: string): string {
  try {
    return decodeURIComponent(query);
  } catch {
    return query;
  }
}
