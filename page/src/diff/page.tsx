/** Two plans side by side, as the service compares them: figures, calls, placement, spec. */
import { api } from "../api/client";
import { useResource } from "../api/resource";
import type { PlanDifference, PlanRecord, Quantity } from "../api/types";
import type { Place } from "../router";
import * as format from "../shared/format";
import { Loaded, Table, useTitle } from "../shared/parts";

export function DiffPage({ place }: { place: Place }) {
  useTitle("Difference of two plans");
  const [, first = "", second = ""] = place.path;
  const found = useResource(`${first} ${second}`, async () => {
    const asked = api.GET("/v1/plans/{plan_id}/diff", {
      params: { path: { plan_id: first }, query: { with: second } },
    });
    const plans = await Promise.all([recordOf(first), recordOf(second)]);
    return { plans, difference: await asked };
  });
  return (
    <>
      <h1>Difference of two plans</h1>
      <Loaded from={found}>
        {({ plans: [a, b], difference }) => (
          <>
            <p>
              First: <a href={`#/plans/${a.id}`}>{a.name}</a>. Second:{" "}
              <a href={`#/plans/${b.id}`}>{b.name}</a>.{" "}
              <a href={`#/diff/${b.id}/${a.id}`}>The other way round</a>
            </p>
            <Difference of={difference} />
          </>
        )}
      </Loaded>
    </>
  );
}

function recordOf(id: string): Promise<PlanRecord> {
  return api.GET("/v1/plans/{plan_id}", { params: { path: { plan_id: id } } });
}

type Text = (value: number) => string;
const plain: Text = (value) => format.general(value, 4);

/** Shares have no change: a gap from almost nothing to little is a million times as large. */
const SHARES: Text[] = [format.chance, format.gap];

const FIGURES: Record<string, [name: string, text: Text]> = {
  iteration_seconds: ["Seconds per iteration", format.seconds],
  price_per_iteration: ["Price per iteration", format.price],
  gpus_used: ["GPUs", format.count],
  tokens_per_second: ["Tokens per second", format.count],
  price_per_million_tokens: ["Price per million tokens", format.price],
  out_of_memory_probability: ["Chance to run out of memory", format.chance],
  relative_gap: ["Gap to the proven bound", format.gap],
};

function Difference({ of }: { of: PlanDifference }) {
  return (
    <>
      <div class="columns">
        <Quantities id="figures" title="Figures" of={of.figures} text={plain} />
        <Quantities id="seconds" title="Calls, seconds" of={of.seconds} text={format.seconds} />
        <Quantities
          id="bytes"
          title="Calls, GiB on the fullest GPU"
          of={of.peak_bytes.filter((each) => each.before || each.after)}
          text={format.gib}
        />
      </div>
      <div class="wall even">
        <section aria-labelledby="placement">
          <h2 id="placement">Placed or set otherwise</h2>
          {of.placement.length === 0 && <p class="quiet">Nothing: the placements are the same.</p>}
          {of.placement.length > 0 && (
            <Table
              label="Placed or set otherwise"
              columns={["What", "First", "Second", "#Seconds more", "#GiB more"]}
            >
              {of.placement.map((each) => (
                <tr key={each.of}>
                  <th scope="row">{each.of}</th>
                  <td class="words">{each.before}</td>
                  <td class="words">{each.after}</td>
                  <td class="number">{format.known(each.more_seconds, more(format.seconds))}</td>
                  <td class="number">{more(format.gib)(each.more_bytes)}</td>
                </tr>
              ))}
            </Table>
          )}
        </section>
        <section aria-labelledby="spec">
          <h2 id="spec">Asked for otherwise</h2>
          {of.spec.length === 0 && <p class="quiet">Nothing: the specs are the same.</p>}
          {of.spec.length > 0 && (
            <Table label="Asked for otherwise" columns={["Field", "First", "Second"]}>
              {of.spec.map((each) => (
                <tr key={each.field}>
                  <th scope="row">
                    <code>{each.field}</code>
                  </th>
                  <td class="words">{fieldText(each.before)}</td>
                  <td class="words">{fieldText(each.after)}</td>
                </tr>
              ))}
            </Table>
          )}
        </section>
      </div>
    </>
  );
}

/** Null: that spec leaves the field to its default. */
function fieldText(value: unknown): string {
  if (value === null) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function more(text: Text): Text {
  return (value) => (value ? `${value > 0 ? "+" : "−"}${text(Math.abs(value))}` : "±0");
}

function Quantities(props: { id: string; title: string; of: Quantity[]; text: Text }) {
  return (
    <section aria-labelledby={props.id}>
      <h2 id={props.id}>{props.title}</h2>
      <Table label={props.title} columns={["What", "#First", "#Second", "#Change"]}>
        {props.of.map(({ of, before, after }) => {
          const [name, text] = FIGURES[of] ?? [of, props.text];
          return (
            <tr key={of}>
              <th scope="row">{name}</th>
              <td class="number">{format.known(before, text)}</td>
              <td class="number">{format.known(after, text)}</td>
              <td class="number strong">
                {before && after !== null && !SHARES.includes(text)
                  ? format.change(after / before - 1)
                  : "–"}
              </td>
            </tr>
          );
        })}
      </Table>
    </section>
  );
}
