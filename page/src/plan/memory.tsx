/** Memory of a GPU by phase and by kind, against what it has. */
import { scaleBand, scaleLinear } from "@visx/scale";
import { Bar, BarStackHorizontal, Line } from "@visx/shape";
import { useContext } from "preact/hooks";
import { chance, gib, percent } from "../shared/format";
import { Table, useSize } from "../shared/parts";
import { rowLabel } from "./gantt";
import { LinkedContext, usePointing } from "./linked";
import { KINDS, phasesOf, type Kind, type Phase, type Segment } from "./timeline";

const words = (kind: Kind) => kind.replace("_", " ").replace("kv", "KV");

export function Memory({ segments }: { segments: Segment[] }) {
  const links = useContext(LinkedContext);
  const onGpus = segments.filter((each) => each.gpus !== null);
  const segment =
    onGpus.find((each) => each.id === links.segment) ??
    onGpus.find((each) => each.events.some((event) => event.name === links.call)) ??
    onGpus[0];
  if (!segment) return null;
  const phases = phasesOf(segment);
  const used = KINDS.filter((kind) => phases.some((phase) => phase.bytes[kind] > 0));
  const capacity = Math.max(...phases.map((phase) => phase.capacity));
  return (
    <section aria-labelledby="memory" class="memory">
      <h2 id="memory">
        Memory{" "}
        <span class="quiet">
          of each GPU of {rowLabel(segment)}, {gib(capacity)} GiB
        </span>
      </h2>
      <ul class="legend">
        {used.map((kind) => (
          <li key={kind} class={`kind-${KINDS.indexOf(kind)}`}>
            <span class="swatch" aria-hidden="true" /> {words(kind)}
          </li>
        ))}
      </ul>
      <Table
        label="Memory by phase and kind"
        columns={["Phase", "Share of the memory", "#GiB", "#Full", "#Runs out"]}
      >
        {phases.map((phase) => (
          <Row key={phase.call?.id ?? ""} phase={phase} kinds={used} capacity={capacity} />
        ))}
      </Table>
      <details>
        <summary>GiB by kind</summary>
        <Table label="GiB by kind" columns={["Phase", ...used.map((kind) => `#${words(kind)}`)]}>
          {phases.map((phase) => (
            <tr key={phase.call?.id ?? ""}>
              <th scope="row">{phase.call?.id ?? "all the time"}</th>
              {used.map((kind) => (
                <td key={kind} class="number">
                  {phase.bytes[kind] ? gib(phase.bytes[kind]) : "–"}
                </td>
              ))}
            </tr>
          ))}
        </Table>
      </details>
    </section>
  );
}

const TALL = 16;
/** Room to the right for an interval that reaches above what the GPU has. */
const BEYOND = 12;

function Row({ phase, kinds, capacity }: { phase: Phase; kinds: Kind[]; capacity: number }) {
  const links = useContext(LinkedContext);
  const name = phase.call?.id ?? "";
  const pointing = usePointing(name);
  const bounds = phase.call?.peak_bytes_interval ?? null;
  const risk = phase.call?.out_of_memory_probability ?? null;
  const parts = kinds.map((kind) => `${words(kind)} ${gib(phase.bytes[kind])}`).join(", ");
  // The interval is that of the fullest GPU: on others it says too much.
  const fullest = phase.call !== null && Math.abs(phase.call.peak_bytes - phase.total) < 1;
  return (
    <tr
      class={name && links.call === name ? "lit" : ""}
      data-phase={name}
      {...(name ? pointing : {})}
    >
      <th scope="row">{name || "all the time"}</th>
      <td>
        <PhaseBar
          label={`${gib(phase.total)} of ${gib(capacity)} GiB: ${parts}`}
          phase={phase}
          kinds={kinds}
          capacity={capacity}
          bounds={fullest ? bounds : null}
        />
      </td>
      <td class="number">{gib(phase.total)}</td>
      <td class="number">{capacity ? percent(phase.total / capacity) : "–"}</td>
      <td class="number">{risk === null || !fullest ? "–" : chance(risk)}</td>
    </tr>
  );
}

/** Kinds of bytes one after another, what the GPU has, and a bracket from the least to the most. */
function PhaseBar(props: {
  label: string;
  phase: Phase;
  kinds: Kind[];
  capacity: number;
  bounds: { low: number; high: number } | null;
}) {
  const [element, { width, scale }] = useSize();
  const tall = TALL * scale;
  const inner = Math.max(1, width - BEYOND);
  const x = scaleLinear<number>({ domain: [0, props.capacity], range: [0, inner] });
  const y = scaleBand<string>({ domain: [""], range: [0, tall] });
  const [low, high] = [x(props.bounds?.low ?? 0), x(props.bounds?.high ?? 0)];
  const ends = [low, Math.min(inner + BEYOND - 2, high)];
  return (
    <div ref={element} class="share">
      <svg role="img" aria-label={props.label} width={width} height={tall}>
        <Bar className="capacity" width={inner} height={tall} />
        <BarStackHorizontal<Phase, Kind>
          data={[props.phase]}
          keys={props.kinds}
          value={(phase, kind) => phase.bytes[kind]}
          y={() => ""}
          xScale={x}
          yScale={y}
          color={(kind) => kind}
        >
          {(stacks) =>
            stacks.flatMap(({ key, bars }) =>
              bars.map(({ x, width, height }) => (
                <Bar
                  key={key}
                  className={`kind kind-${KINDS.indexOf(key)}`}
                  x={x}
                  width={width}
                  height={height}
                />
              )),
            )
          }
        </BarStackHorizontal>
        {props.bounds && (
          <g class="interval">
            <Line from={{ x: low, y: tall / 2 }} to={{ x: ends[1]!, y: tall / 2 }} />
            {ends.map((end, index) => (
              <Line key={index} from={{ x: end, y: tall / 4 }} to={{ x: end, y: (3 * tall) / 4 }} />
            ))}
          </g>
        )}
        <Line className="limit" from={{ x: inner, y: 0 }} to={{ x: inner, y: tall }} />
      </svg>
    </div>
  );
}
