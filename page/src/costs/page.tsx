/** What runs have used and what it cost: by day, owner, model, plan, or the values of a label. */
import { api } from "../api/client";
import { useResource } from "../api/resource";
import type { Budget, Cost } from "../api/types";
import { withQuery, type Place } from "../router";
import { ShareBar } from "../shared/charts";
import * as format from "../shared/format";
import { Figure, Loaded, Table, useTitle } from "../shared/parts";

const GROUPS = ["day", "owner", "model", "plan", "label"] as const;

export function CostsPage({ place }: { place: Place }) {
  useTitle("Costs");
  const group = GROUPS.find((each) => each === place.query.get("by")) ?? "day";
  const label = (place.query.get("label") ?? "").trim();
  const [from, to] = ["from", "to"].map((name) => place.query.get(name) ?? "");
  // A label has no name yet while it is being typed.
  const by = group === "label" ? (label ? `label:${label}` : "day") : group;
  const costs = useResource(`${by} ${from} ${to}`, () =>
    api.GET("/v1/costs", {
      params: {
        query: {
          by,
          ...(from && { after: `${from}T00:00:00Z` }),
          ...(to && { before: `${dayAfter(to)}T00:00:00Z` }),
        },
      },
    }),
  );
  return (
    <>
      <h1>Costs</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          By
          <select
            value={group}
            onChange={(event) => withQuery(place, { by: event.currentTarget.value })}
          >
            {GROUPS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        {group === "label" && (
          <label>
            Key of the label
            <input
              value={label}
              onInput={(event) => withQuery(place, { label: event.currentTarget.value })}
            />
          </label>
        )}
        <Day name="From" value={from ?? ""} change={(value) => withQuery(place, { from: value })} />
        <Day name="To" value={to ?? ""} change={(value) => withQuery(place, { to: value })} />
      </form>
      <Loaded from={costs}>
        {({ total, items, budgets }) => (
          <>
            <dl class="figures">
              <Figure name="Price" value={format.price(total.price)}>
                by the plans' prices per GPU-hour
              </Figure>
              <Figure name="GPU-hours" value={hours(total.gpu_hours)}>
                {total.unpriced_gpu_hours
                  ? `${hours(total.unpriced_gpu_hours)} of them without a price`
                  : "all with a price"}
              </Figure>
              <Figure name="Runs" value={format.count(total.jobs)} />
            </dl>
            {items.length === 0 ? (
              <p class="quiet">Nothing has run then.</p>
            ) : (
              <Groups items={items} by={by} />
            )}
            {budgets && budgets.length > 0 && <Budgets items={budgets} />}
          </>
        )}
      </Loaded>
    </>
  );
}

function hours(value: number): string {
  return format.rate(value);
}

/** The day after one, as both are written: 2026-01-31. */
function dayAfter(day: string): string {
  const next = new Date(`${day}T00:00:00Z`);
  next.setUTCDate(next.getUTCDate() + 1);
  return next.toISOString().slice(0, 10);
}

function Day(props: { name: string; value: string; change: (value: string) => void }) {
  return (
    <label>
      {props.name}
      <input
        type="date"
        value={props.value}
        onChange={(event) => props.change(event.currentTarget.value)}
      />
    </label>
  );
}

function Groups({ items, by }: { items: Cost[]; by: string }) {
  // Where nothing has a price, hours are compared.
  const measure = items.some((each) => each.price > 0) ? "price" : "gpu_hours";
  const most = Math.max(...items.map((each) => each[measure]));
  const share = (each: Cost) => (most ? each[measure] / most : 0);
  const what = by.replace("label:", "");
  return (
    <Table
      label="Costs"
      class="costs"
      columns={[
        what.charAt(0).toUpperCase() + what.slice(1),
        "#Runs",
        "#GPU-hours",
        "#Price",
        measure === "price" ? "Price beside the dearest" : "Hours beside the most",
      ]}
    >
      {items.map((each) => (
        <tr key={each.group}>
          <th scope="row">{each.group || "without that label"}</th>
          <td class="number">{format.count(each.jobs)}</td>
          <td class="number">{hours(each.gpu_hours)}</td>
          <td class="number strong">{format.price(each.price)}</td>
          <td>
            <ShareBar label={`${format.percent(share(each))} of the largest`} share={share(each)} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

function Budgets({ items }: { items: Budget[] }) {
  return (
    <>
      <h2>Budgets of this month</h2>
      <Table label="Budgets" columns={["Of", "Unit", "#Amount", "#Spent", "#Expected", "Warning"]}>
        {items.map((each) => (
          <tr key={each.id}>
            <th scope="row">{each.of}</th>
            <td>{each.unit === "price" ? "price" : "GPU-hours"}</td>
            <td class="number">{amount(each, each.amount)}</td>
            <td class="number strong">{amount(each, each.spent)}</td>
            <td class="number">{amount(each, each.forecast)}</td>
            <td>{each.warning ? `⚠ ${each.warning}` : "none"}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}

function amount({ unit }: Budget, value: number): string {
  return unit === "price" ? format.price(value) : hours(value);
}
