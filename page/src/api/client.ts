/** Requests to the service that served this page; every failure is a `Failure` with its problem. */
import type { paths } from "../../generated/api";
import type { PlanRecord, Problem } from "./types";

const KEY = "automap-key";

export class Failure extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value: string) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Told when the service wants another key than the page has. */
let onUnauthorized = () => {};
export function whenUnauthorized(listener: () => void): void {
  onUnauthorized = listener;
}

export function headers(): Record<string, string> {
  const value = key.get();
  return value ? { Authorization: `Bearer ${value}` } : {};
}

type Method = "get" | "post" | "patch" | "delete";
type Operation<M extends Method, P> = P extends keyof paths
  ? paths[P] extends { [K in M]: infer Found }
    ? Found
    : never
  : never;
type PathsOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: { responses: unknown } } ? P : never;
}[keyof paths];
// Lists are CSV, too, for those who ask for it; the page never does.
type Content<R> = R extends { content: { "application/json": infer C } }
  ? C
  : R extends { content: infer C }
    ? C[keyof C]
    : undefined;
type Answer<Op> = Op extends { responses: infer R }
  ? { [S in keyof R & (200 | 201 | 202 | 204)]: Content<R[S]> }[keyof R & (200 | 201 | 202 | 204)]
  : never;
interface Asked<Op> {
  params?: Op extends { parameters: { path?: infer Path; query?: infer Query } }
    ? { path?: Path; query?: Query }
    : never;
  body?: Op extends { requestBody?: { content: { "application/json": infer Body } } }
    ? Body
    : never;
}

/** What the document says of an operation is what it takes and answers. */
async function ask<Op>(method: Method, path: string, asked: Asked<Op> = {}): Promise<Answer<Op>> {
  const params = (asked.params ?? {}) as { path?: object; query?: object };
  let url = path;
  for (const [name, value] of Object.entries(params.path ?? {}))
    url = url.replace(`{${name}}`, encodeURIComponent(String(value)));
  url += queryText(params.query ?? {});
  const json = asked.body === undefined ? null : JSON.stringify(asked.body);
  return (await sent(
    url,
    { method: method.toUpperCase(), body: json },
    "application/json",
  )) as Answer<Op>;
}

/** What is asked for, after a question mark; each of several values by itself. */
function queryText(query: object): string {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((each) => [name, String(each)]),
  );
  return pairs.length ? `?${new URLSearchParams(pairs).toString()}` : "";
}

export const api = {
  GET: <P extends PathsOf<"get">>(path: P, asked?: Asked<Operation<"get", P>>) =>
    ask<Operation<"get", P>>("get", path, asked),
  POST: <P extends PathsOf<"post">>(path: P, asked?: Asked<Operation<"post", P>>) =>
    ask<Operation<"post", P>>("post", path, asked),
  PATCH: <P extends PathsOf<"patch">>(path: P, asked?: Asked<Operation<"patch", P>>) =>
    ask<Operation<"patch", P>>("patch", path, asked),
  DELETE: <P extends PathsOf<"delete">>(path: P, asked?: Asked<Operation<"delete", P>>) =>
    ask<Operation<"delete", P>>("delete", path, asked),
};

async function sent(url: string, request: RequestInit, type: string): Promise<unknown> {
  const content: Record<string, string> = request.body ? { "Content-Type": type } : {};
  const response = await fetch(url, {
    ...request,
    headers: { ...headers(), ...content, ...(request.headers as Record<string, string>) },
  }).catch((cause: unknown) => {
    throw new Failure(noAnswer(cause));
  });
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const body: unknown = isJson ? await response.json().catch(() => null) : await response.text();
  if (response.ok) return body;
  throw failure(body, response.status);
}

/** All rows of a list as CSV, whatever the page. */
export async function csvOf(path: "/v1/plans" | "/v1/jobs", query: object): Promise<string> {
  return (await sent(path + queryText({ ...query, format: "csv" }), {}, "")) as string;
}

/** Queues a spec as it was written, so that the service reads what the user reads. */
export async function planYaml(yaml: string): Promise<PlanRecord> {
  const request = { method: "POST", body: yaml, headers: { Prefer: "respond-async" } };
  return (await sent("/v1/plans", request, "application/yaml")) as PlanRecord;
}

/**
 * Events of a job after the one with this number, each with its own number, as long as the
 * connection lasts. It returns whether the job is over and all of them were told: a service that is
 * stopped ends its answers, too.
 */
export async function* eventsOf(
  jobId: string,
  after: number,
  signal: AbortSignal,
): AsyncGenerator<[number, Record<string, unknown>], boolean> {
  const response = await fetch(`/v1/jobs/${jobId}/events`, {
    headers: { ...headers(), "Last-Event-ID": String(after) },
    signal,
  }).catch((cause: unknown) => {
    throw new Failure(noAnswer(cause));
  });
  if (!response.ok) throw failure(await response.json().catch(() => null), response.status);
  if (response.status === 204 || !response.body) return true;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return false;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const fields = new Map(
        block.split("\n").map((line) => {
          const [name = "", ...text] = line.split(": ");
          return [name, text.join(": ")];
        }),
      );
      const data = fields.get("data");
      if (data) yield [Number(fields.get("id")), JSON.parse(data) as Record<string, unknown>];
    }
  }
}

/** Whether the same may be answered a moment later, because the service is away or busy. */
export function mayPass(error: unknown): boolean {
  if (!(error instanceof Failure)) return false;
  const { status } = error.problem;
  return status === 0 || status === 408 || status === 429 || status >= 500;
}

function failure(body: unknown, status: number): Failure {
  if (status === 401) onUnauthorized();
  const known = typeof body === "object" && body !== null && "detail" in body && "title" in body;
  return new Failure(
    known
      ? { ...problem("", ""), ...(body as Problem) } // what is empty is left out
      : problem("No answer", `The service answered ${status} without a reason.`, status),
  );
}

function noAnswer(cause: unknown): Problem {
  return problem("No answer", `The service cannot be reached (${String(cause)}).`, 0);
}

export function problem(title: string, detail: string, status = 0): Problem {
  const none = { errors: [], reasons: [], remedies: [], untried: [], lower_bound_seconds: null };
  return { type: "", title, detail, status, ...none };
}
