/** The table of calls, in time order; the key is that of the chart. */
import { useContext } from "preact/hooks";
import type { Plan } from "../api/types";
import * as format from "../shared/format";
import { Table } from "../shared/parts";
import { LinkedContext, usePointing } from "./linked";
import type { Event, GpuRange } from "./timeline";

export function Calls(props: { plan: Plan; events: Event[]; colours: Map<string, string> }) {
  const { plan, events } = props;
  const pools = new Set(plan.copies.map((copy) => copy.pool)).size;
  const staged = events.some((event) => event.stage > 0);
  const streamed = events.some((event) => event.call?.streamed_from?.length);
  return (
    <>
      <Table
        label="Calls"
        class="calls"
        columns={[
          "Call",
          "GPUs",
          "Copy",
          "Layout",
          "#Micro",
          "Recompute",
          ...(staged ? ["#Stage"] : []),
          "#Start s",
          "#Seconds",
          "#80 % of runs",
          "#Share",
          "#MFU",
          "#Tokens/s/GPU",
          "#Memory GiB",
          "#Runs out",
        ]}
      >
        {events.map((event) => (
          <Row
            key={event.name}
            event={event}
            plan={plan}
            colour={event.sync ? "sync" : (props.colours.get(event.role) ?? "")}
            staged={staged}
            pools={pools}
          />
        ))}
      </Table>
      {(staged || streamed || events.some((event) => event.tail)) && (
        <ul class="notes">
          {staged && <li>Stage +1: for the iteration that began a period before.</li>}
          {streamed && <li>~ begins while responses are still generated.</li>}
          {events.map((event) =>
            event.tail ? (
              <li key={event.name}>
                {event.name} goes on with GPUs{" "}
                {format.gpus(event.tail.kept.first, event.tail.kept.num)} alone after{" "}
                {format.seconds(event.tail.after)} s.
              </li>
            ) : null,
          )}
        </ul>
      )}
    </>
  );
}

function Row(props: { event: Event; plan: Plan; colour: string; staged: boolean; pools: number }) {
  const links = useContext(LinkedContext);
  const { event, plan } = props;
  const pointing = usePointing(event.name);
  const call = event.call?.copy ? event.call : null;
  const copy = call && plan.copies.find((each) => each.id === call.copy);
  const where = (range: GpuRange) => {
    const numbers = format.gpus(range.first, range.num);
    return props.pools > 1 ? `${range.pool}[${numbers}]` : numbers;
  };
  const bounds = event.call?.seconds_interval ?? null;
  return (
    <tr
      class={links.call === event.name ? "lit" : ""}
      data-call={event.name}
      onMouseEnter={pointing.onMouseEnter}
      onMouseLeave={pointing.onMouseLeave}
    >
      <th scope="row">
        <button
          type="button"
          class={`call ${props.colour}`}
          aria-pressed={links.chosen === event.name}
          onFocus={pointing.onFocus}
          onBlur={pointing.onBlur}
          onClick={() => links.choose(event.name)}
        >
          <span class="key">{event.key}</span> {event.name}
          {event.call?.streamed_from?.length ? "~" : ""}
        </button>
      </th>
      <td>{event.ranges.map(where).join(" → ") || "host"}</td>
      <td>{copy ? copy.kind : event.sync ? "both" : "–"}</td>
      <td>{call?.parallelism ? format.layout(call.parallelism) : "–"}</td>
      <td class="number">{call?.micro_batch_size ?? "–"}</td>
      <td>{call?.recompute && call.recompute !== "none" ? call.recompute : "–"}</td>
      {props.staged && <td class="number">{event.stage ? `+${event.stage}` : ""}</td>}
      <td class="number">{format.seconds(event.start)}</td>
      <td class="number strong">{format.seconds(event.seconds)}</td>
      <td class="number">{bounds ? format.interval(bounds) : "–"}</td>
      <td class="number">{format.percent(event.seconds / plan.iteration_seconds)}</td>
      <td class="number">{format.known(call?.model_flops_utilization, format.percent)}</td>
      <td class="number">{format.known(call?.tokens_per_second_per_gpu, format.rate)}</td>
      <td class="number">
        {call ? `${format.gib(call.peak_bytes)}/${format.gib(call.capacity_bytes)}` : "–"}
      </td>
      <td class="number">{format.known(call?.out_of_memory_probability, format.chance)}</td>
    </tr>
  );
}
