/** Why this plan: what else was weighed and why it lost, and how wrong the estimates may be. */
import { useState } from "preact/hooks";
import { api } from "../api/client";
import { useAction } from "../api/resource";
import type { Alternative, Explanation, Plan, Sensitivity, Strategy } from "../api/types";
import * as format from "../shared/format";
import { Table, Trouble } from "../shared/parts";
import { ErrorBar } from "./error_bar";

/** What was asked in this tab, as it takes a while and stays true. */
const told = new Map<string, Explanation>();
const compared = new Map<string, Strategy[]>();

export function Why({ id, plan }: { id: string; plan: Plan }) {
  return (
    <div class="wall later">
      <Strategies id={id} plan={plan} />
      <div>
        <Explained id={id} />
      </div>
    </div>
  );
}

function Strategies({ id, plan }: { id: string; plan: Plan }) {
  const compare = useAction(
    async () => {
      const names = (await api.GET("/v1/strategies")).map((each) => each.name);
      const found = await api.POST("/v1/plans/{plan_id}/compare", {
        params: { path: { plan_id: id } },
        body: { strategies: names },
      });
      compared.set(id, found.strategies);
      return found.strategies;
    },
    compared.get(id) ?? null,
  );
  const rows = [...(compare.data ?? plan.alternatives)].sort(
    (a, b) =>
      Number(b.feasible) - Number(a.feasible) ||
      (a.iteration_seconds ?? 0) - (b.iteration_seconds ?? 0),
  );
  return (
    <section aria-labelledby="strategies">
      <h2 id="strategies">Named strategies</h2>
      <Table
        label="Named strategies"
        columns={["Strategy", "#Seconds", "#Times slower", "#By its own cost", "#Price", "Why not"]}
      >
        <tr class="lit">
          <th scope="row">this plan</th>
          <td class="number">{format.seconds(plan.iteration_seconds)}</td>
          <td class="number">1.00</td>
          <td class="number">–</td>
          <td class="number">{format.price(plan.price_per_iteration)}</td>
          <td />
        </tr>
        {rows.map((each) => (
          <tr key={each.name}>
            <th scope="row">{each.name}</th>
            <td class="number">{format.known(each.iteration_seconds, format.seconds)}</td>
            <td class="number">{format.known(each.times_slower, (times) => times.toFixed(2))}</td>
            <td class="number">{format.known(each.claimed_seconds, format.seconds)}</td>
            <td class="number">{format.known(each.price_per_iteration, format.price)}</td>
            <td class="prose">
              {!each.feasible && <strong>cannot run: </strong>}
              {each.reason}
            </td>
          </tr>
        ))}
      </Table>
      {compare.problem && <Trouble problem={compare.problem} />}
      {!compare.data && (
        <button type="button" disabled={compare.busy} onClick={() => void compare.run()}>
          {compare.busy ? `Placing … ${compare.seconds} s` : "Compare with all strategies"}
        </button>
      )}
    </section>
  );
}

const PARTS = [
  ["alternatives", "alternatives"],
  ["sensitivity", "sensitivity"],
  ["regret", "regret"],
] as const;
type Part = (typeof PARTS)[number][0];

function Explained({ id }: { id: string }) {
  const [parts, setParts] = useState<Part[]>(["alternatives", "sensitivity"]);
  const explain = useAction(
    async () => {
      const found = await api.POST("/v1/plans/{plan_id}/explain", {
        params: { path: { plan_id: id } },
        body: { parts, fewer_gpus: null, scenarios: 32, search_seconds: 2 },
      });
      told.set(id, found);
      return found;
    },
    told.get(id) ?? null,
  );
  const found = explain.data;
  return (
    <>
      <section aria-labelledby="explain">
        <h2 id="explain">Solved questions</h2>
        <p class="quiet">
          Each alternative is searched under one more constraint: seconds on a node, minutes on a
          large cluster.
        </p>
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            void explain.run();
          }}
        >
          {PARTS.map(([name, text]) => (
            <label key={name} class="check">
              <input
                type="checkbox"
                checked={parts.includes(name)}
                onChange={() =>
                  setParts(
                    parts.includes(name) ? parts.filter((each) => each !== name) : [...parts, name],
                  )
                }
              />{" "}
              {text}
            </label>
          ))}
          <button type="submit" disabled={explain.busy || parts.length === 0}>
            {explain.busy
              ? `Searching … ${explain.seconds} s`
              : found
                ? "Explain again"
                : "Explain"}
          </button>
        </form>
        {explain.problem && <Trouble problem={explain.problem} />}
      </section>
      {found && (found.alternatives ?? []).length > 0 && <Alternatives of={found} />}
      {found && (found.sensitivity ?? []).length > 0 && <Sensitivities of={found} />}
      {found?.regret && <Regrets regret={found.regret} />}
    </>
  );
}

const OUTCOMES: Record<Alternative["outcome"], string> = {
  same: "= the same plan",
  slower: "▲ slower",
  faster: "▼ faster",
  as_fast: "≈ as fast",
  does_not_fit: "✕ does not fit",
  no_layout: "✕ no layout",
  undecided: "? undecided",
};

function Alternatives({ of }: { of: Explanation }) {
  return (
    <section aria-labelledby="alternatives">
      <h2 id="alternatives">Alternatives</h2>
      <Table
        label="Alternatives"
        columns={[
          "What if …",
          "Outcome",
          "#Seconds",
          "#More",
          "#Proven at least",
          "#Price",
          "#Idle",
          "Why",
        ]}
      >
        {(of.alternatives ?? []).map((each) => (
          <tr key={each.question}>
            <th scope="row" class="prose">
              {each.text}
            </th>
            <td>{OUTCOMES[each.outcome]}</td>
            <td class="number">{format.known(each.iteration_seconds, format.seconds)}</td>
            <td class="number">{format.known(each.slower_share, format.change)}</td>
            <td class="number">{format.known(each.lower_bound_seconds, format.seconds)}</td>
            <td class="number">{format.known(each.price_per_iteration, format.price)}</td>
            <td class="number">{format.known(each.idle_share, format.percent)}</td>
            <td class="prose">
              {each.answer}
              {each.over_bytes ? ` (${format.gib(each.over_bytes)} GiB too many)` : ""}
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Sensitivities({ of }: { of: Explanation }) {
  return (
    <section aria-labelledby="sensitivity">
      <h2 id="sensitivity">How wrong an estimate may be before another plan wins</h2>
      <p class="quiet">
        The band is the error that 80 % of runs stay within; the marks are where another plan is
        better by more than {format.general(100 * of.margin)} %.
      </p>
      <Table
        label="Sensitivity"
        columns={[
          "Estimate",
          "#Seconds",
          "Error that changes the plan",
          "#Shorter",
          "#Longer",
          "What wins then",
        ]}
      >
        {(of.sensitivity ?? []).map((each) => (
          <tr key={each.subject}>
            <th scope="row">{each.subject}</th>
            <td class="number">{format.seconds(each.seconds)}</td>
            <td>
              <ErrorBar of={each} label={errorsText(each)} />
            </td>
            <td class="number">{errorText(each.less.error, each.less.searched)}</td>
            <td class="number">{errorText(each.more.error, each.more.searched)}</td>
            <td class="prose">
              <Winner of={each} />
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Winner({ of }: { of: Sensitivity }) {
  const winners = [
    ["longer", of.more.winner],
    ["shorter", of.less.winner],
  ].filter(([, winner]) => winner);
  return (
    <>
      {winners.map(([when, winner]) => (
        <details key={when}>
          <summary>where it is {when}</summary>
          {winner}
        </details>
      ))}
    </>
  );
}

function errorText(error: number | null, searched: number): string {
  return error === null ? `none to ${format.change(searched)}` : format.change(error);
}

function errorsText({ less, more, spread }: Sensitivity): string {
  return (
    `shorter by ${errorText(less.error, less.searched)}, ` +
    `longer by ${errorText(more.error, more.searched)}; ` +
    `80 % within ±${format.percent(spread)}`
  );
}

function Regrets({ regret }: { regret: NonNullable<Explanation["regret"]> }) {
  const share = (value: number) => `${format.general(100 * value)} %`;
  return (
    <section aria-labelledby="regret">
      <h2 id="regret">What not knowing the true seconds costs</h2>
      <p>
        {`Over ${regret.scenarios} drawn scenarios the best plan of each is better by ` +
          `${share(regret.sampled.p50)} in the median and ${share(regret.sampled.p95)} in the 95th ` +
          `percentile; in the worst of ${regret.corners} corners by ${share(regret.worst_corner)}.`}
      </p>
    </section>
  );
}
