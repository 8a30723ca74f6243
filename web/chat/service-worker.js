/* Opens the app without a network. It holds the app's own files and nothing of a conversation.
   The build fills in the list of files; its hash is the version. */
const VERSION = "__VERSION__";
const FILES = ["__FILES__"];
const CACHE = `hermes-chat-${VERSION}`;

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(FILES))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) =>
        Promise.all(
          names
            .filter((name) => name.startsWith("hermes-chat-") && name !== CACHE)
            .map((name) => caches.delete(name)),
        ),
      )
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const address = new URL(request.url);
  const scope = new URL(self.registration.scope);
  if (request.method !== "GET" || address.origin !== scope.origin) return;
  if (!address.pathname.startsWith(scope.pathname)) return;
  if (request.mode === "navigate") {
    // The page itself: the newest where there is a network, or updates would come a visit late.
    event.respondWith(
      fetch(request).catch(() => caches.match("./", { cacheName: CACHE, ignoreSearch: true })),
    );
    return;
  }
  event.respondWith(
    caches.match(request, { cacheName: CACHE }).then((found) => found ?? fetch(request)),
  );
});
