/** Two plans side by side: figures, where each copy lies, what each call takes. */
import type { ComponentChildren } from "preact";
import { api } from "../api/client";
import { useResource } from "../api/resource";
import { planOf, type Plan } from "../api/types";
import type { Place } from "../router";
import * as format from "../shared/format";
import { Loaded, Table, useTitle } from "../shared/parts";

interface Side {
  id: string;
  plan: Plan;
}

export function DiffPage({ place }: { place: Place }) {
  useTitle("Difference of two plans");
  const [, first = "", second = ""] = place.path;
  const both = useResource(`${first} ${second}`, () => Promise.all([side(first), side(second)]));
  return (
    <>
      <h1>Difference of two plans</h1>
      <Loaded from={both}>{([a, b]) => <Difference a={a} b={b} />}</Loaded>
    </>
  );
}

async function side(id: string): Promise<Side> {
  const asked = api.GET("/v1/plans/{plan_id}", { params: { path: { plan_id: id } } });
  const record = await asked;
  const plan = planOf(record);
  if (!plan) throw new Error(`${record.spec_name} has no plan that this version reads`);
  return { id, plan };
}

type Quantity = [string, (plan: Plan) => number, (value: number) => string];

const QUANTITIES: Quantity[] = [
  ["Seconds per iteration", (plan) => plan.iteration_seconds, format.seconds],
  ["Proven bound, seconds", (plan) => plan.lower_bound_seconds, format.seconds],
  ["Tokens per second", (plan) => plan.tokens_per_second, format.count],
  ["GPUs", (plan) => plan.gpus_used, format.count],
  ["Price per iteration", (plan) => plan.price_per_iteration, format.price],
  ["Price per million tokens", (plan) => plan.price_per_million_tokens, format.price],
  [
    "Fullest GPU, GiB",
    (plan) => Math.max(...plan.calls.map((call) => call.peak_bytes)),
    format.gib,
  ],
];

function Difference({ a, b }: { a: Side; b: Side }) {
  const columns = ["What", "#First", "#Second", "#Change"];
  const calls = united(a.plan.calls, b.plan.calls);
  const copies = united(a.plan.copies, b.plan.copies);
  return (
    <>
      <p>
        First: <a href={`#/plans/${a.id}`}>{a.plan.name}</a>. Second:{" "}
        <a href={`#/plans/${b.id}`}>{b.plan.name}</a>.
      </p>
      <div class="columns">
        <section aria-labelledby="figures">
          <h2 id="figures">Figures</h2>
          <Table label="Figures" columns={columns}>
            {QUANTITIES.map(([name, of, text]) => (
              <Row key={name} name={name} a={of(a.plan)} b={of(b.plan)} text={text} />
            ))}
          </Table>
        </section>
        <section aria-labelledby="calls">
          <h2 id="calls">Calls, seconds</h2>
          <Table label="Calls, seconds" columns={columns}>
            {calls.map(([id, x, y]) => (
              <Row
                key={id}
                name={id}
                a={x ? x.end_seconds - x.start_seconds : null}
                b={y ? y.end_seconds - y.start_seconds : null}
                text={format.seconds}
              />
            ))}
          </Table>
        </section>
        <section aria-labelledby="bytes">
          <h2 id="bytes">Calls, GiB on the fullest GPU</h2>
          <Table label="Calls, GiB on the fullest GPU" columns={columns}>
            {calls
              .filter(([, x, y]) => x?.copy || y?.copy)
              .map(([id, x, y]) => (
                <Row
                  key={id}
                  name={id}
                  a={x?.peak_bytes ?? null}
                  b={y?.peak_bytes ?? null}
                  text={format.gib}
                />
              ))}
          </Table>
        </section>
      </div>
      <section aria-labelledby="placement">
        <h2 id="placement">Placement</h2>
        <Table label="Placement" columns={["Copy", "First", "Second", "Change"]}>
          {copies.map(([id, x, y]) => (
            <Words key={id} name={id} a={x ? placed(x) : "–"} b={y ? placed(y) : "–"} />
          ))}
          {calls.map(([id, x, y]) => (
            <Words key={id} name={id} a={x ? runs(x) : "–"} b={y ? runs(y) : "–"} />
          ))}
        </Table>
      </section>
    </>
  );
}

function united<T extends { id: string }>(a: T[], b: T[]): [string, T | null, T | null][] {
  const ids = [...new Set([...a, ...b].map((each) => each.id))];
  const find = (among: T[], id: string) => among.find((each) => each.id === id) ?? null;
  return ids.map((id) => [id, find(a, id), find(b, id)]);
}

function placed(copy: Plan["copies"][number]): string {
  const parts = [
    `${copy.pool}[${format.gpus(copy.first_gpu, copy.num_gpus)}]`,
    format.layout(copy.layout),
  ];
  if (copy.layout.sharding !== "none") parts.push(`sharding ${copy.layout.sharding}`);
  if (copy.offload !== "none") parts.push(`offload ${copy.offload}`);
  return parts.join(", ");
}

function runs(call: Plan["calls"][number]): string {
  const parts = [call.parallelism ? format.layout(call.parallelism) : "host"];
  if (call.micro_batch_size) parts.push(`micro-batch ${call.micro_batch_size}`);
  if (call.recompute && call.recompute !== "none") parts.push(`recompute ${call.recompute}`);
  if (call.kv_cache_bytes) parts.push(`${format.gib(call.kv_cache_bytes)} GiB of cache`);
  return parts.join(", ");
}

function Row(props: {
  name: string;
  a: number | null;
  b: number | null;
  text: (value: number) => string;
}) {
  const { a, b, text } = props;
  const cell = (value: number | null): ComponentChildren => (value === null ? "–" : text(value));
  return (
    <tr>
      <th scope="row">{props.name}</th>
      <td class="number">{cell(a)}</td>
      <td class="number">{cell(b)}</td>
      <td class="number strong">{a && b !== null ? format.change(b / a - 1) : "–"}</td>
    </tr>
  );
}

function Words({ name, a, b }: { name: string; a: string; b: string }) {
  return (
    <tr class={a === b ? "" : "lit"}>
      <th scope="row">{name}</th>
      <td>{a}</td>
      <td>{b}</td>
      <td>{a === b ? "same" : "differs"}</td>
    </tr>
  );
}
