/** Puts a gzipped copy beside every built file that gets smaller by it. */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";

const folder = resolve(import.meta.dirname, "../../service/page");
for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const path = join(entry.parentPath, entry.name);
  const content = await readFile(path);
  const packed = gzipSync(content, { level: 9 });
  if (packed.length < 0.9 * content.length) await writeFile(`${path}.gz`, packed);
}
