/** Nodes and their GPUs: what lives on each, and how full its memory gets. */
import { useContext } from "preact/hooks";
import type { CopyPlan, GpuDescription, Plan } from "../api/types";
import { count, gib, gpus as gpuNumbers, layout } from "../shared/format";
import { useWidth } from "../shared/parts";
import { rowLabel } from "./gantt";
import { LinkedContext, onPress } from "./linked";
import { nodeGroups, phasesOf, sum, type NodeGroup, type Phase, type Segment } from "./timeline";

const CELL = 22;
const TALL = 58;
const CHIP = 5;
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
        <PoolMap key={pool.name} pool={pool} segments={props.segments} colours={props.colours} />
      ))}
    </div>
  );
}

function Legend({ plan, colours }: { plan: Plan; colours: Map<string, string> }) {
  return (
    <ul class="legend">
      {plan.copies.map((copy) => (
        <li key={copy.id} class={colours.get(copy.role) ?? ""}>
          <span class="swatch" aria-hidden="true" /> {copy.id}{" "}
          <span class="quiet">{describe(copy)}</span>
        </li>
      ))}
    </ul>
  );
}

function describe(copy: CopyPlan): string {
  const parts = [`GPUs ${gpuNumbers(copy.first_gpu, copy.num_gpus)}`, layout(copy.layout)];
  if (copy.layout.sharding !== "none") parts.push(`sharded ${copy.layout.sharding}`);
  if (copy.offload !== "none") parts.push(`offloads ${copy.offload}`);
  return parts.join(" · ");
}

function PoolMap(props: { pool: Pool; segments: Segment[]; colours: Map<string, string> }) {
  const [element, width] = useWidth();
  const { pool } = props;
  const groups = nodeGroups(pool.name, props.segments, pool.perNode, pool.numNodes, APART);
  const perNode = pool.perNode * (CELL + 2) + 12;
  const columns = Math.max(1, Math.floor((width + 10) / (perNode + 10)));
  const rows = Math.ceil(groups.length / columns);
  const chips = Math.max(1, ...props.segments.map((segment) => segment.copies.length));
  const tall = 20 + TALL + 4 + Math.ceil(chips / 4) * (CHIP + 1) + 8;
  // A node with more GPUs than there is room for is drawn smaller, as a whole.
  const scale = Math.min(1, width / perNode || 1);
  return (
    <div ref={element} class="pool">
      <h3>
        {pool.name}{" "}
        <span class="quiet">{`${count(pool.numNodes)} × ${pool.perNode} ${pool.gpu}`}</span>
      </h3>
      <svg
        role="group"
        aria-label={`Nodes of ${pool.name} and their GPUs`}
        width={width}
        height={scale * rows * (tall + 10)}
      >
        <g transform={`scale(${scale})`}>
          {width > 0 &&
            groups.map((group, index) => (
              <g
                key={group.first}
                transform={`translate(${(index % columns) * (perNode + 10)} ${Math.floor(index / columns) * (tall + 10)})`}
              >
                <Node group={group} width={perNode} height={tall} colours={props.colours} />
              </g>
            ))}
        </g>
      </svg>
    </div>
  );
}

function Node(props: {
  group: NodeGroup;
  width: number;
  height: number;
  colours: Map<string, string>;
}) {
  const { group } = props;
  const name =
    group.num === 1
      ? `node ${group.first}`
      : `nodes ${group.first}–${group.first + group.num - 1}: ${count(group.num)} alike`;
  const runs = runsOf(group);
  return (
    <g>
      <rect class="node" x={0.5} y={0.5} width={props.width - 1} height={props.height - 1} rx={4} />
      <text class="tick" x={6} y={14}>
        {name}
      </text>
      {runs.map((run) => (
        <g key={run.first} transform={`translate(${7 + run.first * (CELL + 2)} 20)`}>
          {run.segment ? (
            <Cells segment={run.segment} num={run.num} node={name} colours={props.colours} />
          ) : (
            <rect class="unused" width={run.num * (CELL + 2) - 2} height={TALL} rx={2}>
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

/** GPUs of a node on which the same lives, each as a column of memory with its models below. */
function Cells(props: {
  segment: Segment;
  num: number;
  node: string;
  colours: Map<string, string>;
}) {
  const links = useContext(LinkedContext);
  const { segment } = props;
  const phases = phasesOf(segment);
  const shown = phaseShown(phases, links.call);
  const busy = links.call !== null && segment.events.some((event) => event.name === links.call);
  const state = links.call === null ? "" : busy ? "lit" : "dim";
  const chosen = links.segment === segment.id;
  const lives = segment.copies.map((copy) => copy.id).join(", ");
  const says =
    `${rowLabel(segment)}, ${props.node}: ${lives}; ` +
    (shown.call ? `${gib(shown.total)} of ${gib(shown.capacity)} GiB in ${shown.call.id}` : "");
  const resident = segment.copies.map((copy) => ({
    colour: props.colours.get(copy.role) ?? "",
    bytes: copy.resident_bytes,
  }));
  const y = (bytes: number) =>
    shown.capacity ? (Math.min(bytes, shown.capacity) / shown.capacity) * TALL : 0;
  const transient = shown.total - sum(resident.map((each) => each.bytes));
  const column = [
    ...resident.map((each) => ({ ...each, kind: "stays" })),
    {
      colour: (shown.call && props.colours.get(shown.call.role)) ?? "",
      bytes: transient,
      kind: "passes",
    },
  ];
  return (
    <g
      class={`cells ${state} ${chosen ? "chosen" : ""}`}
      role="button"
      tabIndex={0}
      aria-label={says}
      aria-pressed={chosen}
      data-segment={segment.id}
      {...onPress(() => links.chooseSegment(segment.id))}
    >
      <title>{says}</title>
      {Array.from({ length: props.num }, (_, gpu) => {
        let above = TALL;
        return (
          <g key={gpu} transform={`translate(${gpu * (CELL + 2)} 0)`}>
            <rect class="capacity" width={CELL} height={TALL} rx={2} />
            {column.map((part, index) => {
              const height = y(part.bytes);
              above -= height;
              return (
                <rect
                  key={index}
                  class={`${part.kind} ${part.colour}`}
                  y={above}
                  width={CELL}
                  height={height}
                />
              );
            })}
            {segment.copies.map((copy, index) => (
              <rect
                key={copy.id}
                class={`stays ${props.colours.get(copy.role) ?? ""}`}
                x={(index % 4) * (CHIP + 0.6)}
                y={TALL + 4 + Math.floor(index / 4) * (CHIP + 1)}
                width={CHIP}
                height={CHIP}
              />
            ))}
          </g>
        );
      })}
      <rect class="outline" x={-1} y={-1} width={props.num * (CELL + 2)} height={TALL + 2} rx={3} />
    </g>
  );
}

/** The phase of the call that is pointed at, else the fullest. */
export function phaseShown(phases: Phase[], call: string | null): Phase {
  const pointed = phases.find((phase) => phase.call !== null && phase.call.id === call);
  const [first, ...others] = phases;
  if (!first) throw new Error("a segment without phases");
  return pointed ?? others.reduce((most, each) => (each.total > most.total ? each : most), first);
}
