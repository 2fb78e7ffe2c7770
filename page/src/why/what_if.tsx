/** The job on other clusters, and all plans that no other beats in both seconds and price. */
import { useState } from "preact/hooks";
import { api } from "../api/client";
import { useAction, useResource } from "../api/resource";
import type { Plan } from "../api/types";
import * as format from "../shared/format";
import { Points } from "../shared/charts";
import { Loaded, Table, Trouble } from "../shared/parts";

export function WhatIf({ plan }: { plan: Plan }) {
  return (
    <div class="wall even">
      <Clusters plan={plan} />
      <Front plan={plan} />
    </div>
  );
}

function Clusters({ plan }: { plan: Plan }) {
  const pools = typeof plan.spec.cluster === "string" ? [] : plan.spec.cluster.pools;
  const gpus = useResource("gpus", () => api.GET("/v1/gpus"));
  const [pool, setPool] = useState(pools[0]?.name ?? "");
  const now = pools.find((each) => each.name === pool);
  const [nodes, setNodes] = useState(around(now?.num_nodes ?? 1).join(" "));
  const [chosen, setChosen] = useState<string[]>([]);
  const ask = useAction(() =>
    api.POST("/v1/plans/what-if", {
      body: {
        spec: plan.spec,
        pool: pools.length > 1 ? pool : null,
        nodes: nodes
          .split(/[\s,]+/)
          .filter(Boolean)
          .map(Number),
        gpus: chosen,
      },
    }),
  );
  return (
    <section aria-labelledby="clusters">
      <h2 id="clusters">On other clusters</h2>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          void ask.run();
        }}
      >
        {pools.length > 1 && (
          <label>
            Pool
            <select
              value={pool}
              onChange={(event) => {
                const name = event.currentTarget.value;
                setPool(name);
                setNodes(
                  around(pools.find((each) => each.name === name)?.num_nodes ?? 1).join(" "),
                );
              }}
            >
              {pools.map((each) => (
                <option key={each.name}>{each.name}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          Numbers of nodes
          <input
            value={nodes}
            inputMode="numeric"
            onInput={(event) => setNodes(event.currentTarget.value)}
          />
        </label>
        <Loaded from={gpus}>
          {(known) => (
            <label>
              GPU types (none: {now?.gpu})
              <select
                multiple
                size={3}
                onChange={(event) =>
                  setChosen([...event.currentTarget.selectedOptions].map((each) => each.value))
                }
              >
                {known.map(({ gpu }) => (
                  <option key={gpu.name} value={gpu.name} selected={chosen.includes(gpu.name)}>
                    {gpu.name}
                  </option>
                ))}
              </select>
            </label>
          )}
        </Loaded>
        <button type="submit" disabled={ask.busy}>
          {ask.busy ? `Planning … ${ask.seconds} s` : "Plan them"}
        </button>
      </form>
      {ask.problem && <Trouble problem={ask.problem} />}
      {ask.data && (
        <Table
          label="On other clusters"
          columns={["Cluster", "#GPUs", "#Seconds", "#Price", "#Scaling", "Plan"]}
        >
          {ask.data.variants.map((each) => (
            <tr key={`${each.gpu} ${each.num_nodes}`}>
              <th scope="row">
                {each.num_nodes} × {each.gpu}
              </th>
              <td class="number">{format.count(each.num_gpus)}</td>
              <td class="number">{format.known(each.plan?.iteration_seconds, format.seconds)}</td>
              <td class="number">{format.known(each.plan?.price_per_iteration, format.price)}</td>
              <td class="number">{format.known(each.scaling_efficiency, format.percent)}</td>
              <td class="prose">
                {each.plan ? (
                  <a href={`#/plans/${each.plan.id}`}>open</a>
                ) : (
                  (each.reasons ?? []).map((reason) => reason.summary).join("; ")
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function Front({ plan }: { plan: Plan }) {
  const ask = useAction(() =>
    api.POST("/v1/plans/pareto", { body: { spec: plan.spec, tolerance: 0.02 } }),
  );
  const points = (ask.data?.plans ?? []).flatMap((each): [number, number][] =>
    each.iteration_seconds != null && each.price_per_iteration != null
      ? [[each.iteration_seconds, each.price_per_iteration]]
      : [],
  );
  return (
    <section aria-labelledby="front">
      <h2 id="front">Seconds against price</h2>
      <p class="quiet">
        All plans that no other beats in both by more than 2 %, on the job's nodes or fewer; each is
        stored.
      </p>
      <button type="button" disabled={ask.busy} onClick={() => void ask.run()}>
        {ask.busy ? `Searching … ${ask.seconds} s` : "Find the Pareto front"}
      </button>
      {ask.problem && <Trouble problem={ask.problem} />}
      {ask.data && (
        <>
          <Points
            label={`Pareto front of ${points.length} plans: seconds of an iteration across, price up`}
            points={points}
          />
          <Table label="Pareto front" columns={["#Plan", "#Seconds", "#Price", "#GPUs", "Plan"]}>
            {ask.data.plans.map((each, index) => (
              <tr key={each.id}>
                <th scope="row" class="number">
                  {index + 1}
                </th>
                <td class="number">{format.known(each.iteration_seconds, format.seconds)}</td>
                <td class="number">{format.known(each.price_per_iteration, format.price)}</td>
                <td class="number">{format.known(each.gpus_used, format.count)}</td>
                <td>
                  <a href={`#/plans/${each.id}`}>open</a>
                </td>
              </tr>
            ))}
          </Table>
          {!ask.data.proven && <p>The time limit left some numbers of nodes open.</p>}
        </>
      )}
    </section>
  );
}

/** Half as many nodes, as many, twice as many. */
function around(nodes: number): number[] {
  return [...new Set([Math.max(1, Math.floor(nodes / 2)), nodes, 2 * nodes])];
}
