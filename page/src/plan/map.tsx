/** Nodes and their GPUs: what lives on each, and how full its memory gets. */
import { useContext } from "preact/hooks";
import type { CopyPlan, GpuDescription, Plan } from "../api/types";
import { chance, count, gib, gpus as gpuNumbers, layout } from "../shared/format";
import { useSize } from "../shared/parts";
import { rowLabel } from "./gantt";
import { LinkedContext, onPress } from "./linked";
import { nodeGroups, phasesOf, sum, type NodeGroup, type Phase, type Segment } from "./timeline";

const LEAST_CELL = 15;
const MOST_CELL = 44;
const GAP = 2;
const TALL = 72;
const HEAD = 22;
const LANE = 6;
const MARGIN = 8;
const BETWEEN = 12;
/** How far a second card shows behind the first where it stands for several nodes. */
const STACK = 3;
/** Up to so many nodes of a pool each is drawn; of more, those that are alike once. */
const APART = 16;

export interface Pool {
  name: string;
  gpu: string;
  numNodes: number;
  perNode: number;
}

/** The pools of a plan; what the spec leaves out is the catalogue's. */
export function poolsOf(plan: Plan, catalogue: GpuDescription[]): Pool[] {
  const cluster = plan.spec.cluster;
  if (typeof cluster === "string") return [];
  return cluster.pools.map((pool) => {
    const known = catalogue.find(
      ({ gpu }) => gpu.name === pool.gpu || (gpu.aliases ?? []).includes(pool.gpu),
    );
    return {
      name: pool.name,
      gpu: pool.gpu,
      numNodes: pool.num_nodes,
      perNode: pool.gpus_per_node ?? known?.default_node.gpus_per_node ?? 8,
    };
  });
}

export function GpuMap(props: {
  plan: Plan;
  pools: Pool[];
  segments: Segment[];
  colours: Map<string, string>;
}) {
  return (
    <div class="map">
      <Legend plan={props.plan} colours={props.colours} />
      {props.pools.map((pool) => (
        <PoolMap
          key={pool.name}
          pool={pool}
          copies={props.plan.copies}
          segments={props.segments}
          colours={props.colours}
        />
      ))}
    </div>
  );
}

function Legend({ plan, colours }: { plan: Plan; colours: Map<string, string> }) {
  const pools = new Set(plan.copies.map((copy) => copy.pool)).size;
  return (
    <ul class="legend">
      {plan.copies.map((copy) => (
        <li key={copy.id} class={colours.get(copy.role) ?? ""}>
          <span class="swatch" aria-hidden="true" /> {copy.id}{" "}
          <span class="quiet">{describe(copy, pools > 1)}</span>
        </li>
      ))}
    </ul>
  );
}

function describe(copy: CopyPlan, withPool: boolean): string {
  const numbers = gpuNumbers(copy.first_gpu, copy.num_gpus);
  const where = withPool ? `${copy.pool}[${numbers}]` : `GPUs ${numbers}`;
  const parts = [where, layout(copy.layout)];
  if (copy.layout.sharding !== "none") parts.push(`sharded ${copy.layout.sharding}`);
  if (copy.offload !== "none") parts.push(`offloads ${copy.offload}`);
  return parts.join(" · ");
}

interface Drawing {
  /** Width of a GPU with the gap after it, in pixels. */
  step: number;
  width: number;
  height: number;
  /** Copies of the pool: each has a lane below the GPUs. */
  lanes: CopyPlan[];
  colours: Map<string, string>;
}

function PoolMap(props: {
  pool: Pool;
  copies: CopyPlan[];
  segments: Segment[];
  colours: Map<string, string>;
}) {
  const [element, size] = useSize();
  // Drawn in units that are pixels where text is of its usual size.
  const width = size.width / size.scale;
  const { pool } = props;
  const groups = nodeGroups(pool.name, props.segments, pool.perNode, pool.numNodes, APART);
  const least = pool.perNode * (LEAST_CELL + GAP) + 2 * MARGIN;
  const most = Math.max(1, Math.floor((width + BETWEEN) / (least + BETWEEN)));
  // As many to a row as there is room for, and rows of the same length.
  const rows = Math.ceil(groups.length / most);
  const columns = Math.ceil(groups.length / rows);
  const wide = Math.min(
    pool.perNode * (MOST_CELL + GAP) + 2 * MARGIN,
    (width - (columns - 1) * BETWEEN - STACK) / columns,
  );
  const lanes = props.copies.filter((copy) => copy.pool === pool.name);
  const drawing: Drawing = {
    step: Math.max(2, (wide - 2 * MARGIN) / pool.perNode),
    width: wide,
    height: HEAD + TALL + 6 + lanes.length * LANE + 6,
    lanes,
    colours: props.colours,
  };
  const height = rows * (drawing.height + BETWEEN);
  const x = (index: number) => (index % columns) * (wide + BETWEEN);
  const y = (index: number) => Math.floor(index / columns) * (drawing.height + BETWEEN);
  return (
    <div ref={element} class="pool">
      <h3>
        {pool.name}{" "}
        <span class="quiet">{`${count(pool.numNodes)} × ${pool.perNode} ${pool.gpu}`}</span>
      </h3>
      <svg
        role="group"
        aria-label={`Nodes of ${pool.name} and their GPUs`}
        width={size.width}
        height={height * size.scale}
        viewBox={`0 0 ${width} ${height}`}
      >
        {width > 0 &&
          groups.map((group, index) => (
            <g key={group.first} transform={`translate(${x(index)} ${y(index)})`}>
              <Node group={group} drawing={drawing} />
            </g>
          ))}
      </svg>
    </div>
  );
}

function Node({ group, drawing }: { group: NodeGroup; drawing: Drawing }) {
  const name =
    group.num === 1
      ? `node ${group.first}`
      : `nodes ${group.first}–${group.first + group.num - 1}: ${count(group.num)} alike`;
  const card = { width: drawing.width - 1, height: drawing.height - 1, rx: 4 };
  return (
    <g>
      {group.num > 1 && <rect class="node" x={0.5 + STACK} y={0.5 + STACK} {...card} />}
      <rect class="node" x={0.5} y={0.5} {...card} />
      <text class="tick" x={MARGIN} y={15}>
        {name}
      </text>
      {runsOf(group).map((run) => (
        <g key={run.first} transform={`translate(${MARGIN + run.first * drawing.step} ${HEAD})`}>
          {run.segment ? (
            <Cells segment={run.segment} num={run.num} node={name} drawing={drawing} />
          ) : (
            <rect class="unused" width={run.num * drawing.step - GAP} height={TALL} rx={2}>
              <title>{`unused GPUs of ${name}`}</title>
            </rect>
          )}
        </g>
      ))}
    </g>
  );
}

interface Run {
  first: number;
  num: number;
  segment: Segment | null;
}

function runsOf(group: NodeGroup): Run[] {
  const runs: Run[] = [];
  for (const [index, segment] of group.cells.entries()) {
    const last = runs.at(-1);
    if (last && last.segment === segment) last.num += 1;
    else runs.push({ first: index, num: 1, segment });
  }
  return runs;
}

/** GPUs of a node on which the same lives: memory as columns, a lane below for each copy. */
function Cells(props: { segment: Segment; num: number; node: string; drawing: Drawing }) {
  const links = useContext(LinkedContext);
  const { segment, num, drawing } = props;
  const { step, lanes, colours } = drawing;
  const shown = phaseShown(phasesOf(segment), links.call);
  const busy = links.call !== null && segment.events.some((event) => event.name === links.call);
  const state = links.call === null ? "" : busy ? "lit" : "dim";
  const chosen = links.segment === segment.id;
  const lives = segment.copies.map((copy) => copy.id).join(", ");
  const full = shown.call
    ? `${gib(shown.total)} of ${gib(shown.capacity)} GiB in ${shown.call.id}${risk(shown)}`
    : "";
  const says = `${rowLabel(segment)}, ${props.node}: ${lives}; ${full}`;
  return (
    <g
      class={`cells ${state} ${chosen ? "chosen" : ""}`}
      role="button"
      tabindex={0}
      aria-label={says}
      aria-pressed={chosen}
      data-segment={segment.id}
      {...onPress(() => links.chooseSegment(segment.id))}
    >
      <title>{says}</title>
      <rect class="hit" width={num * step} height={drawing.height - HEAD} />
      {Array.from({ length: num }, (_, gpu) => (
        <g key={gpu} transform={`translate(${gpu * step} 0)`}>
          <Column segment={segment} phase={shown} width={step - GAP} colours={colours} />
        </g>
      ))}
      {segment.copies.map((copy) => (
        <rect
          key={copy.id}
          class={`stays ${colours.get(copy.role) ?? ""}`}
          y={TALL + 6 + lanes.indexOf(copy) * LANE}
          width={num * step - GAP}
          height={LANE - 2}
        />
      ))}
      <rect class="outline" x={-1} y={-1} width={num * step} height={TALL + 2} rx={3} />
    </g>
  );
}

/** How likely the call runs out of memory, where this GPU is one of its fullest. */
function risk({ call, total }: Phase): string {
  const probability = call?.out_of_memory_probability ?? null;
  if (call === null || probability === null || Math.abs(call.peak_bytes - total) >= 1) return "";
  return `, runs out with a chance of ${chance(probability)}`;
}

/** The memory of one GPU: what stays, and above it what the call adds. */
function Column(props: {
  segment: Segment;
  phase: Phase;
  width: number;
  colours: Map<string, string>;
}) {
  const { segment, phase, width, colours } = props;
  const y = (bytes: number) => (phase.capacity ? Math.min(1, bytes / phase.capacity) * TALL : 0);
  const resident = segment.copies.map((copy) => ({
    class: `stays ${colours.get(copy.role) ?? ""}`,
    bytes: copy.resident_bytes,
  }));
  const added = {
    class: `passes ${(phase.call && colours.get(phase.call.role)) ?? ""}`,
    bytes: phase.total - sum(resident.map((each) => each.bytes)),
  };
  let below = 0;
  return (
    <>
      <rect class="capacity" width={width} height={TALL} rx={2} />
      {[...resident, added].map((part, index) => {
        below += part.bytes;
        return (
          <rect
            key={index}
            class={part.class}
            y={TALL - y(below)}
            width={width}
            height={y(part.bytes)}
          />
        );
      })}
    </>
  );
}

/** The phase of the call that is pointed at, else the fullest. */
export function phaseShown(phases: Phase[], call: string | null): Phase {
  const pointed = phases.find((phase) => phase.call !== null && phase.call.id === call);
  const [first, ...others] = phases;
  if (!first) throw new Error("a segment without phases");
  return pointed ?? others.reduce((most, each) => (each.total > most.total ? each : most), first);
}
