/** Memory of a GPU by phase and by kind, against what it has. */
import { useContext } from "preact/hooks";
import { chance, gib, percent } from "../shared/format";
import { Table } from "../shared/parts";
import { rowLabel } from "./gantt";
import { LinkedContext, usePointing } from "./linked";
import { KINDS, phasesOf, sum, type Kind, type Phase, type Segment } from "./timeline";

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

const WIDE = 190;
const TALL = 16;

function Row({ phase, kinds, capacity }: { phase: Phase; kinds: Kind[]; capacity: number }) {
  const links = useContext(LinkedContext);
  const name = phase.call?.id ?? "";
  const pointing = usePointing(name);
  const x = (bytes: number) => (bytes / capacity) * WIDE;
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
        <svg
          role="img"
          aria-label={`${gib(phase.total)} of ${gib(capacity)} GiB: ${parts}`}
          width={WIDE + 12}
          height={TALL}
        >
          <rect class="capacity" width={WIDE} height={TALL} />
          {kinds.map((kind, index) => (
            <rect
              key={kind}
              class={`kind kind-${KINDS.indexOf(kind)}`}
              x={x(sum(kinds.slice(0, index).map((each) => phase.bytes[each])))}
              width={x(phase.bytes[kind])}
              height={TALL}
            />
          ))}
          {bounds && fullest && (
            <path
              class="interval"
              d={`M${x(bounds.low)} 8H${Math.min(WIDE + 10, x(bounds.high))}m0 -4v8M${x(bounds.low)} 4v8`}
            />
          )}
          <line class="limit" x1={WIDE} x2={WIDE} y1={0} y2={TALL} />
        </svg>
      </td>
      <td class="number">{gib(phase.total)}</td>
      <td class="number">{capacity ? percent(phase.total / capacity) : "–"}</td>
      <td class="number">{risk === null || !fullest ? "–" : chance(risk)}</td>
    </tr>
  );
}
