/** What a plan does on which GPUs and when: what chart, map and table show alike. */
import type { BytesByKind, CallPlan, CopyPlan, Plan, WeightSync } from "../api/types";

export interface GpuRange {
  pool: string;
  first: number;
  num: number;
}

/** A call or weight sync; `ranges` is empty for a function on the host. */
export interface Event {
  /** The letter that names it in the chart. */
  key: string;
  name: string;
  role: string;
  ranges: GpuRange[];
  stage: number;
  start: number;
  seconds: number;
  call: CallPlan | null;
  sync: WeightSync | null;
  /** GPUs that a generation keeps to its end, and after how many seconds the others are free. */
  tail: { kept: GpuRange; after: number } | null;
}

/** GPUs on which the same things happen and lie; the host has no range. */
export interface Segment {
  id: string;
  gpus: GpuRange | null;
  copies: CopyPlan[];
  events: Event[];
}

export interface Piece {
  start: number;
  end: number;
  /** The rest of what began in the period before. */
  continues: boolean;
}

const KEYS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

const rangeOf = (copy: CopyPlan): GpuRange => ({
  pool: copy.pool,
  first: copy.first_gpu,
  num: copy.num_gpus,
});

export function covers(outer: GpuRange, inner: GpuRange): boolean {
  return (
    outer.pool === inner.pool &&
    outer.first <= inner.first &&
    inner.first + inner.num <= outer.first + outer.num
  );
}

export function eventsOf(plan: Plan): Event[] {
  const copies = new Map(plan.copies.map((copy) => [copy.id, copy]));
  const lasting = (start: number, end: number) =>
    // In a cyclic schedule what crosses the end of a period may end before it starts.
    end >= start ? end - start : end - start + plan.iteration_seconds;
  const ranges = (...ids: (string | null | undefined)[]) =>
    ids.flatMap((id) => {
      const copy = id ? copies.get(id) : undefined;
      return copy ? [rangeOf(copy)] : [];
    });
  const calls = plan.calls.map((call): Event => {
    const taken = ranges(call.copy);
    const kept = taken[0];
    return {
      key: "",
      name: call.id,
      role: call.role,
      ranges: taken,
      stage: call.stage,
      start: call.start_seconds,
      seconds: lasting(call.start_seconds, call.end_seconds),
      call,
      sync: null,
      tail:
        call.tail && kept && call.bulk_end_seconds
          ? {
              kept: { ...kept, num: call.tail.num_gpus },
              after: call.bulk_end_seconds - call.start_seconds,
            }
          : null,
    };
  });
  const syncs = plan.transitions.map((sync): Event => ({
    key: "",
    name: `${sync.role}.sync`,
    role: sync.role,
    ranges: ranges(sync.source_copy, sync.target_copy),
    stage: sync.stage,
    start: sync.start_seconds,
    seconds: lasting(sync.start_seconds, sync.end_seconds),
    call: null,
    sync,
    tail: null,
  }));
  return [...calls, ...syncs]
    .sort((a, b) => a.stage - b.stage || a.start - b.start)
    .map((event, index) => ({ ...event, key: KEYS[index % KEYS.length] ?? "?" }));
}

/** GPUs between the ends of all ranges, pools apart, then the host. */
export function segmentsOf(plan: Plan, events: Event[]): Segment[] {
  const ranges = [
    ...plan.copies.map(rangeOf),
    ...events.flatMap((event) => (event.tail ? [event.tail.kept] : [])),
  ];
  const segments: Segment[] = [];
  for (const pool of [...new Set(ranges.map((each) => each.pool))].sort()) {
    const here = ranges.filter((each) => each.pool === pool);
    const ends = [...new Set(here.flatMap((each) => [each.first, each.first + each.num]))].sort(
      (a, b) => a - b,
    );
    for (const [index, first] of ends.slice(0, -1).entries()) {
      const gpus = { pool, first, num: (ends[index + 1] ?? first) - first };
      segments.push({
        id: `${pool}:${first}`,
        gpus,
        copies: plan.copies.filter((copy) => covers(rangeOf(copy), gpus)),
        events: events
          .filter((event) => event.ranges.some((each) => covers(each, gpus)))
          .map((event) =>
            event.tail && !covers(event.tail.kept, gpus)
              ? { ...event, seconds: event.tail.after }
              : event,
          ),
      });
    }
  }
  const host = events.filter((event) => event.ranges.length === 0);
  if (host.length) segments.push({ id: "host", gpus: null, copies: [], events: host });
  return segments.filter((each) => each.copies.length || each.events.length);
}

/** An event within one period: whole, or cut in two where it runs over the end. */
export function pieces(event: Event, period: number): Piece[] {
  const start = event.start >= period ? event.start % period : event.start;
  const end = start + event.seconds;
  if (end <= period * (1 + 1e-9)) return [{ start, end, continues: false }];
  return [
    { start, end: period, continues: false },
    { start: 0, end: Math.min(end - period, start), continues: true },
  ];
}

export const KINDS = [
  "weights",
  "gradients",
  "optimizer",
  "activations",
  "logits",
  "kv_cache",
  "communication_buffers",
  "workspace",
] as const satisfies readonly (keyof BytesByKind)[];
export type Kind = (typeof KINDS)[number];

/** Bytes on a GPU of a segment while a call runs there; without one, what stays. */
export interface Phase {
  event: Event | null;
  call: CallPlan | null;
  bytes: Record<Kind, number>;
  total: number;
  capacity: number;
}

export function phasesOf(segment: Segment): Phase[] {
  const calls = segment.events.filter((event) => event.call?.copy);
  const capacity = Math.max(0, ...calls.map((event) => event.call?.capacity_bytes ?? 0));
  const phase = (event: Event | null): Phase => {
    const parts = [...segment.copies, ...(event?.call ? [event.call] : [])];
    const bytes = Object.fromEntries(
      KINDS.map((kind) => [kind, sum(parts.map((part) => part.bytes_by_kind[kind]))]),
    ) as Record<Kind, number>;
    return {
      event,
      call: event?.call ?? null,
      bytes,
      total: sum(Object.values(bytes)),
      capacity: event?.call?.capacity_bytes ?? capacity,
    };
  };
  return [phase(null), ...calls.map(phase)];
}

export function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Nodes of a pool that are alike, drawn once. */
export interface NodeGroup {
  first: number;
  num: number;
  /** Its GPUs: which segment each belongs to; null: unused. */
  cells: (Segment | null)[];
}

/** A pool's nodes, neighbours that are alike as one group if there are more than `apart`. */
export function nodeGroups(
  pool: string,
  segments: Segment[],
  perNode: number,
  numNodes: number,
  apart: number,
): NodeGroup[] {
  const here = segments.filter((each) => each.gpus?.pool === pool);
  // Only where a segment begins or ends can a node differ from the one before.
  const starts = new Set([0, numNodes]);
  for (const { gpus } of here) {
    if (!gpus) continue;
    for (const end of [gpus.first, gpus.first + gpus.num]) {
      starts.add(Math.min(numNodes, Math.floor(end / perNode)));
      starts.add(Math.min(numNodes, Math.ceil(end / perNode)));
    }
  }
  const ordered =
    numNodes <= apart
      ? Array.from({ length: numNodes + 1 }, (_, index) => index)
      : [...starts].sort((a, b) => a - b);
  return ordered.slice(0, -1).map((first, index) => ({
    first,
    num: (ordered[index + 1] ?? first) - first,
    cells: Array.from({ length: perNode }, (_, gpu) => {
      const number = first * perNode + gpu;
      return (
        here.find(({ gpus }) => gpus && gpus.first <= number && number < gpus.first + gpus.num) ??
        null
      );
    }),
  }));
}
