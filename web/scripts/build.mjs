/** Builds every page into `dist/`: avatar, chat, panel, sample. Usage: `node scripts/build.mjs [page…]` */
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(root, "dist");

/** @type {Record<string, () => Promise<void>>} */
const pages = {
  async avatar() {
    await build({
      ...shared("avatar"),
      plugins: [classicScript()],
      build: {
        ...output("avatar"),
        cssCodeSplit: false,
        rollupOptions: { output: { format: "iife" } },
      },
    });
  },
  async chat() {
    await build({ ...shared("chat"), publicDir: join(root, "chat/public"), build: output("chat") });
    await writeServiceWorker(join(dist, "chat"));
  },
  async panel() {
    await build({
      ...shared("panel"),
      build: {
        ...output("panel"),
        lib: {
          entry: join(root, "panel/main.ts"),
          formats: ["iife"],
          name: "hermesPanel",
          fileName: () => "hermes-panel.js",
        },
      },
    });
    await escapeCharacters(join(dist, "panel/hermes-panel.js"));
    await nameByContent(join(dist, "panel"), "hermes-panel.js");
  },
  async sample() {
    await build({ ...shared("sample"), build: output("sample") });
    // Where somebody lands who has just signed in.
    await copyFile(join(root, "sample/start.html"), join(dist, "index.html"));
  },
};

const wanted = process.argv.slice(2);
for (const name of wanted.length === 0 ? Object.keys(pages) : wanted) {
  const page = pages[name];
  if (page === undefined) throw new Error(`There is no page ${name}.`);
  await page();
}

/** @param {string} name */
function shared(name) {
  return {
    root: join(root, name),
    base: "./",
    configFile: /** @type {const} */ (false),
    publicDir: /** @type {string | false} */ (false),
    logLevel: /** @type {const} */ ("warn"),
    define: { "process.env.NODE_ENV": '"production"' },
  };
}

/** @param {string} name */
function output(name) {
  return {
    outDir: join(dist, name),
    emptyOutDir: true,
    target: /** @type {string[]} */ (["chrome123", "firefox121", "safari17.5"]),
    // Data in the page's text would need a wider policy for its content.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  };
}

/**
 * The avatar runs in sandboxed frames, which have no origin of their own; a module script would be
 * refused there, a classic one is not.
 *
 * @returns {import("vite").Plugin}
 */
function classicScript() {
  return {
    name: "classic-script",
    transformIndexHtml: {
      order: "post",
      handler: (html) =>
        html
          .replace(/<script type="module" crossorigin/g, "<script defer")
          .replace(/<link rel="stylesheet" crossorigin/g, '<link rel="stylesheet"'),
    },
  };
}

/**
 * A page may include the script without saying in which encoding it is, and a server may not say it
 * either: then only plain ASCII is read as it was written.
 *
 * @param {string} file
 */
async function escapeCharacters(file) {
  const text = await readFile(file, "utf8");
  /** @param {string} unit */
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  await writeFile(file, text.replace(/[\u0080-\uffff]/g, escaped));
}

/**
 * Beside the name that host pages use stands one that never changes its content, for long caching
 * and `integrity`.
 *
 * @param {string} folder
 * @param {string} name
 */
async function nameByContent(folder, name) {
  const content = await readFile(join(folder, name));
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 10);
  const hashed = name.replace(/\.js$/, `-${hash}.js`);
  await mkdir(join(folder, "assets"), { recursive: true });
  await writeFile(join(folder, "assets", hashed), content);
  const integrity = `sha384-${createHash("sha384").update(content).digest("base64")}`;
  const manifest = { script: name, hashed: `assets/${hashed}`, integrity };
  await writeFile(join(folder, "manifest.json"), `${JSON.stringify(manifest, null, 2)}\n`);
}

/** @param {string} folder */
async function writeServiceWorker(folder) {
  const found = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = found
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll("\\", "/"))
    // The system fetches its icons by itself, and once.
    .filter((name) => name !== "service-worker.js" && !/^icon-.*\.png$/.test(name))
    .sort();
  const hash = createHash("sha256");
  for (const file of files) hash.update(file).update(await readFile(join(folder, file)));
  const list = ["./", ...files.filter((name) => name !== "index.html").map((name) => `./${name}`)];
  const source = await readFile(join(root, "chat/service-worker.js"), "utf8");
  await rm(join(folder, "service-worker.js"), { force: true });
  await writeFile(
    join(folder, "service-worker.js"),
    source
      .replace("__VERSION__", hash.digest("hex").slice(0, 12))
      .replace('["__FILES__"]', JSON.stringify(list)),
  );
}
