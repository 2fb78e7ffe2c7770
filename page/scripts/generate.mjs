/**
 * Turns the documents of generated/ (see documents.py) into code: the types of the API, and a
 * validator of specs. It is made here because the page may not evaluate code that it makes itself.
 */
import { readFile, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import Ajv2020 from "ajv/dist/2020.js";
import standalone from "ajv/dist/standalone/index.js";
import openapiTS, { astToString } from "openapi-typescript";

const folder = resolve(import.meta.dirname, "../generated");
const read = async (name) => JSON.parse(await readFile(resolve(folder, name), "utf-8"));

const api = await openapiTS(await read("openapi.json"));
await writeFile(resolve(folder, "api.d.ts"), astToString(api));

/** A schema without what only its reader needs, which would travel with the code. */
function bare(schema) {
  if (Array.isArray(schema)) return schema.map(bare);
  if (schema === null || typeof schema !== "object") return schema;
  const kept = Object.entries(schema).filter(([key]) => !["title", "description"].includes(key));
  return Object.fromEntries(
    kept.map(([key, value]) => [
      key,
      ["properties", "$defs"].includes(key)
        ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, bare(each)]))
        : bare(value),
    ]),
  );
}

const ajv = new Ajv2020({
  allErrors: true,
  strict: false,
  verbose: false,
  code: { source: true, esm: true },
});
const validate = ajv.compile(bare(await read("job-spec.json")));
// Two helpers of the library are all that its code requires.
const code = standalone
  .default(ajv, validate)
  .replaceAll(
    /const (\w+) = require\("([^"]+)"\)\.default/g,
    (_, name, path) =>
      `import ${name}_module from "${path}.js";\nconst ${name} = ${name}_module.default ?? ${name}_module`,
  );
await writeFile(resolve(folder, "validate.js"), code);
await writeFile(
  resolve(folder, "validate.d.ts"),
  `export interface SchemaError {
  instancePath: string;
  schemaPath: string;
  keyword: string;
  params: Record<string, unknown>;
  message?: string;
}
declare const validate: ((data: unknown) => boolean) & { errors?: SchemaError[] | null };
export default validate;
`,
);
