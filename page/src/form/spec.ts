/** A job spec as text: read, checked against its schema, and changed at a path. */
import { LineCounter, parseDocument, stringify, type Document } from "yaml";
import validate from "../../generated/validate.js";
import type { FieldError } from "../api/types";

export type Path = (string | number)[];

export interface Remark {
  field: string;
  message: string;
  line: number | null;
}

export interface Spec {
  text: string;
  document: Document;
  /** What is wrong with it by YAML, or else by the schema. */
  remarks: Remark[];
}

export const START = `name: my-first-plan
algorithm: grpo
models:
  actor: {architecture: qwen2.5-7b}
  reference: {architecture: qwen2.5-7b}
  reward: {function: true, seconds_per_response: 0.01, concurrency: 64}
workload:
  prompts_per_iteration: 256
  responses_per_prompt: 8
  prompt_length: {mean: 512, max: 1024}
  response_length: {mean: 1024, max: 4096}
  updates_per_epoch: 2
  kl: loss
  iterations: 500
cluster:
  pools:
    - {name: h100, gpu: h100, num_nodes: 2, gpus_per_node: 8}
search:
  objective: throughput
  time_limit_seconds: 30
`;

export function read(text: string): Spec {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true });
  if (document.errors.length)
    return {
      text,
      document,
      remarks: document.errors.map((error) => ({
        field: "",
        message: error.message.split("\n")[0]?.replace(/ at line.*/, "") ?? "",
        line: lines.linePos(error.pos[0]).line,
      })),
    };
  const remarks = schemaRemarks(document.toJS()).map((remark) => ({
    ...remark,
    line: lineOf(document, lines, remark.field),
  }));
  return { text, document, remarks };
}

/** The spec with one value replaced; `undefined` takes it away. Comments stay. */
export function changed(spec: Spec, path: Path, value: unknown): Spec {
  const document = parseDocument(spec.text);
  if (value === undefined) document.deleteIn(path);
  else document.setIn(path, document.createNode(value, { flow: true }));
  return read(document.toString({ flowCollectionPadding: false }));
}

export function valueAt(spec: Spec, path: Path): unknown {
  if (spec.document.errors.length) return undefined;
  const found: unknown = spec.document.getIn(path);
  return typeof found === "object" && found !== null && "toJS" in found
    ? (found as { toJS: (of: Document) => unknown }).toJS(spec.document)
    : found;
}

/** What the service found wrong, at the lines of this text. */
export function serviceRemarks(spec: Spec, errors: FieldError[]): Remark[] {
  const lines = new LineCounter();
  const document = parseDocument(spec.text, { lineCounter: lines });
  return errors.map((each) => ({
    field: each.field,
    message: each.message + (each.remedy ? ` (${each.remedy})` : ""),
    line: lineOf(document, lines, each.field),
  }));
}

function lineOf(document: Document, lines: LineCounter, field: string): number | null {
  const path: Path = field.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  for (; path.length; path.pop()) {
    const node = document.getIn(path, true) as { range?: [number, number, number] } | undefined;
    if (node?.range) return lines.linePos(node.range[0]).line;
  }
  return null;
}

/** The schema's errors, without those of branches that were not meant. */
function schemaRemarks(data: unknown): Omit<Remark, "line">[] {
  if (validate(data)) return [];
  const errors = (validate.errors ?? [])
    .filter((error) => !["anyOf", "oneOf", "if"].includes(error.keyword))
    .map((error) => {
      const inside = error.instancePath.slice(1).split("/").filter(Boolean);
      const { missingProperty, additionalProperty } = error.params;
      const named = missingProperty ?? additionalProperty;
      return { ...error, field: [...inside, ...(named ? [String(named)] : [])].join(".") };
    });
  const found = new Map<string, string>();
  for (const error of errors) {
    const deeper = errors.some((other) => other.field.startsWith(`${error.field}.`));
    const beside = errors.some((other) => other.field === error.field && other.keyword !== "type");
    if (error.keyword === "type" && error.schemaPath.includes("/anyOf/") && (deeper || beside))
      continue;
    const before = found.get(error.field);
    const message = messageOf(error);
    if (before === undefined) found.set(error.field, message);
    else if (error.keyword === "type" && !before.includes(message))
      found.set(error.field, `${before} or ${message.replace("must be ", "")}`);
  }
  return [...found].map(([field, message]) => ({ field, message }));
}

function messageOf(error: { keyword: string; params: Record<string, unknown>; message?: string }) {
  if (error.keyword === "required") return "is missing";
  if (error.keyword === "additionalProperties") return "there is no such field";
  if (error.keyword === "enum")
    return `must be one of ${(error.params["allowedValues"] as unknown[]).join(", ")}`;
  return error.message ?? "is not valid";
}

interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  default?: unknown;
}

/** A stored spec as its author would write it: without what is the default anyway. */
export function written(spec: unknown, root: Schema): string {
  const resolve = (schema: Schema | undefined): Schema => {
    const name = schema?.$ref?.split("/").at(-1);
    if (name) return resolve(root.$defs?.[name]);
    const object = schema?.anyOf?.find((each) => each.$ref ?? each.items ?? each.properties);
    return object ? resolve(object) : (schema ?? {});
  };
  const bare = (value: unknown, schema: Schema): unknown => {
    if (Array.isArray(value)) return value.map((each) => bare(each, resolve(schema.items)));
    if (typeof value !== "object" || value === null) return value;
    const others =
      Object.values(schema.patternProperties ?? {})[0] ??
      (typeof schema.additionalProperties === "object" ? schema.additionalProperties : undefined);
    const kept = Object.entries(value).flatMap(([name, each]): [string, unknown][] => {
      const known = schema.properties?.[name];
      const inner = bare(each, resolve(known ?? others));
      const empty = typeof inner === "object" && inner !== null && !Object.keys(inner).length;
      const usual = JSON.stringify(each) === JSON.stringify(known?.default);
      return each === null || usual || (empty && known) ? [] : [[name, inner]];
    });
    return Object.fromEntries(kept);
  };
  return stringify(bare(spec, root), { flowCollectionPadding: false, lineWidth: 100 });
}
