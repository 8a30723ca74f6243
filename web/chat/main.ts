/** Starts the app, and the worker that opens it without a network. */
import "../markdown/markdown.css";
import "./app.css";
import "./cards.css";
import "./entries.css";
import "./views/app.ts";

if ("serviceWorker" in navigator && import.meta.env.PROD) {
  window.addEventListener("load", () => {
    // Not in insecure pages, and not where it is switched off: the app works without.
    navigator.serviceWorker.register("./service-worker.js").catch(() => undefined);
  });
}
