/** Puts the built pages where the Python distributions carry them. They are build products, kept out of git. */
import { cp, mkdir, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const repository = dirname(web);

/** Which distribution serves which pages. */
const carriers = [
  { folder: join(repository, "adapter/hermes_mobile/pages"), pages: ["avatar", "chat"] },
  {
    folder: join(repository, "proxy/hermes_client_proxy/pages"),
    pages: ["panel", "sample", "index.html"],
  },
];

for (const { folder, pages } of carriers) {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, ".gitignore"), "*\n");
  for (const page of pages) {
    const source = join(web, "dist", page);
    await stat(source).catch(() => {
      throw new Error(`${source} is missing. Run: npm run build`);
    });
    await rm(join(folder, page), { recursive: true, force: true });
    await cp(source, join(folder, page), { recursive: true });
  }
}
