import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { PlanSummary } from "../api/types";
import { go, withQuery, type Place } from "../router";
import { count, gap, known, moment, price, seconds } from "../shared/format";
import { State, Table, Trouble, useTitle } from "../shared/parts";
import { askedOf, Choice, Csv, Filters, Narrowed, usePages, Whose } from "./filters";
import { useWall, WHOSE_COLUMNS, WhoseCells } from "./wide";

const STATES = ["queued", "running", "succeeded", "failed", "cancelled"] as const;
const ALGORITHMS = [
  "ppo",
  "grpo",
  "remax",
  "safe_rlhf",
  "rloo",
  "reinforce_plus_plus",
  "dapo",
] as const;

const SORT_TEXTS = {
  created_at: "oldest first",
  name: "name",
  iteration_seconds: "fastest first",
  price_per_iteration: "cheapest first",
  gpus_used: "fewest GPUs first",
  "-gpus_used": "most GPUs first",
} as const;
const SORTS = Object.keys(SORT_TEXTS) as (keyof typeof SORT_TEXTS)[];

const COLUMNS = [
  "State",
  "Plan",
  "Models",
  "#GPUs",
  "#s / iteration",
  "#Measured s",
  "#Gap",
  "#Price",
  "Made",
  "Compare",
];

const WALL_COLUMNS = [
  ...COLUMNS.slice(0, 2),
  "Algorithm",
  "Objective",
  ...COLUMNS.slice(2, 7),
  "#Proven at least",
  ...COLUMNS.slice(7, -1),
  ...WHOSE_COLUMNS,
  "Compare",
];

export function PlanList({ place }: { place: Place }) {
  useTitle("Plans");
  const status = STATES.find((each) => each === place.query.get("status"));
  const algorithm = ALGORITHMS.find((each) => each === place.query.get("algorithm"));
  const sort = SORTS.find((each) => each === place.query.get("sort"));
  const query = {
    ...askedOf(place),
    ...(sort && { sort }),
    ...(status && { status }),
    ...(algorithm && { algorithm }),
  };
  const pages = usePages(JSON.stringify(query), (cursor) =>
    api.GET("/v1/plans", {
      params: {
        query: { ...query, ...(cursor && { cursor }) },
      },
    }),
  );
  const wall = useWall();
  const [chosen, setChosen] = useState<string[]>([]);
  const choose = (id: string) =>
    setChosen(
      chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id].slice(-2),
    );
  const shown = pages.items;
  return (
    <>
      <div class="title">
        <h1>Plans</h1>
        <button
          type="button"
          disabled={chosen.length < 2}
          onClick={() => go(`/diff/${chosen.join("/")}`)}
        >
          {chosen.length < 2 ? "Choose two to compare" : "Compare the two"}
        </button>
        <a class="button primary" href="#/new">
          New plan
        </a>
      </div>
      <Filters place={place} hint="name, owner, label, note, model, algorithm">
        <Choice
          label="State"
          value={status ?? ""}
          among={STATES}
          onChange={(value) => withQuery(place, { status: value })}
        />
        <Choice
          label="Algorithm"
          value={algorithm ?? ""}
          among={ALGORITHMS}
          onChange={(value) => withQuery(place, { algorithm: value })}
        />
        <Choice
          label="Order"
          value={sort ?? ""}
          among={SORTS}
          none="latest first"
          texts={SORT_TEXTS}
          onChange={(value) => withQuery(place, { sort: value })}
        />
        <Csv list="plans" query={query} />
        <Narrowed place={place} />
      </Filters>
      {pages.problem && <Trouble problem={pages.problem} />}
      {shown && shown.length > 0 && (
        <Table label="Plans" class="list" columns={wall ? WALL_COLUMNS : COLUMNS}>
          {shown.map((plan) => (
            <Row
              key={plan.id}
              plan={plan}
              wall={wall}
              chosen={chosen.includes(plan.id)}
              choose={choose}
            />
          ))}
        </Table>
      )}
      {shown?.length === 0 && <p class="quiet">There are no such plans.</p>}
      {pages.more && (
        <p>
          <button type="button" onClick={() => void pages.more?.()}>
            Older plans
          </button>
        </p>
      )}
    </>
  );
}

function Row(props: {
  plan: PlanSummary;
  wall: boolean;
  chosen: boolean;
  choose: (id: string) => void;
}) {
  const { plan, wall } = props;
  return (
    <tr>
      <td>
        <State of={plan.status} />
      </td>
      <th scope="row">
        <a href={`#/plans/${plan.id}`}>{plan.name}</a>
        {!wall && <Whose of={plan} list="plans" first={plan.algorithm ?? "own dataflow"} />}
      </th>
      {wall && (
        <>
          <td>{plan.algorithm ?? "own dataflow"}</td>
          <td>{plan.objective.replaceAll("_", " ")}</td>
        </>
      )}
      <td data-label="Models">{[...new Set(Object.values(plan.models))].join(", ") || "–"}</td>
      <td class="number" data-label="GPUs">
        {known(plan.gpus_used, count)}
      </td>
      <td class="number" data-label="s / iteration">
        {known(plan.iteration_seconds, seconds)}
      </td>
      <td class="number" data-label="Measured s">
        {known(plan.measured_iteration_seconds, seconds)}
      </td>
      <td class="number" data-label="Gap">
        {known(plan.relative_gap, gap)}
      </td>
      {wall && <td class="number">{known(plan.lower_bound_seconds, seconds)}</td>}
      <td class="number" data-label="Price">
        {known(plan.price_per_iteration, price)}
      </td>
      <td data-label="Made">
        <time dateTime={plan.created_at}>{moment(plan.created_at)}</time>
      </td>
      {wall && <WhoseCells of={plan} list="plans" />}
      <td data-label="Compare">
        <input
          type="checkbox"
          aria-label={`Compare ${plan.name} of ${moment(plan.created_at)}`}
          checked={props.chosen}
          disabled={plan.status !== "succeeded"}
          onChange={() => props.choose(plan.id)}
        />
      </td>
    </tr>
  );
}
