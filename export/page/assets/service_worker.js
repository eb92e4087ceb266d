/**
 * Keep the page, and nothing else, so that it opens without a network. VERSION and FILES are
 * written by export/page/page_files.py: another file makes another version, and the old one goes.
 */

const VERSION = "{version}";
const FILES = ["{files}"];
const OURS = "sotto-page-";
const CACHE = OURS + VERSION;
const BASE = new URL("./", self.location).href;

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(removeOthers().then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  const name = url.startsWith(BASE) ? url.slice(BASE.length).split(/[?#]/)[0] || "./" : null;
  if (method === "GET" && FILES.includes(name)) event.respondWith(fromCache(name, event.request));
});

async function fromCache(name, request) {
  return (await (await caches.open(CACHE)).match(name)) ?? fetch(request);
}

async function removeOthers() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith(OURS) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
}
