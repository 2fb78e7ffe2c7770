/** A plan: its first line, warnings, chart, map, tables; and what else can be asked of it. */
import { useMemo } from "preact/hooks";
import type { DescriptionPatch } from "../api/types";
import { api } from "../api/client";
import { useAction, useResource } from "../api/resource";
import { isOpen, planOf, type GpuDescription, type Plan, type PlanRecord } from "../api/types";
import { go, type Place } from "../router";
import { count, moment, numberOf } from "../shared/format";
import { Copy, Loaded, State, Table, Trouble, useTitle } from "../shared/parts";
import { roleColours } from "../shared/roles";
import { Why } from "../why/page";
import { WhatIf } from "../why/what_if";
import { Described } from "../shared/description";
import { Calls } from "./calls";
import { PlanCosts } from "./costs";
import { Export } from "./export";
import { Gantt } from "./gantt";
import { Headline } from "./headline";
import { LinkedContext, useLinks } from "./linked";
import { GpuMap, poolsOf } from "./map";
import { Memory } from "./memory";
import { eventsOf, segmentsOf } from "./timeline";

const PARTS = [
  ["", "Plan"],
  ["why", "Why"],
  ["what-if", "What if"],
  ["export", "Export"],
  ["json", "Documents"],
] as const;

/** The catalogue does not change while the page is open. */
let catalogue: Promise<GpuDescription[]> | null = null;
const gpus = () => (catalogue ??= api.GET("/v1/gpus"));

export function PlanPage({ place }: { place: Place }) {
  const [, id = "", part = ""] = place.path;
  const record = useResource(
    id,
    async () => {
      const asked = api.GET("/v1/plans/{plan_id}", { params: { path: { plan_id: id } } });
      return { record: await asked, gpus: await gpus() };
    },
    ({ record }) => (isOpen(record.status) ? 1 : null),
  );
  useTitle(record.data?.record.name ?? "Plan");
  return (
    <Loaded from={record}>
      {({ record: found, gpus: known }) => (
        <>
          <Title record={found} part={part} onChange={record.reload} />
          {found.problem && <Trouble problem={found.problem} />}
          <Part record={found} gpus={known} part={part} />
        </>
      )}
    </Loaded>
  );
}

function Title(props: { record: PlanRecord; part: string; onChange: () => void }) {
  const { record, part } = props;
  const remove = useAction(async () => {
    const params = { path: { plan_id: record.id } };
    if (isOpen(record.status)) {
      await api.POST("/v1/plans/{plan_id}/cancel", { params });
      props.onChange();
    } else if (window.confirm("Delete this plan and the records of its jobs?")) {
      await api.DELETE("/v1/plans/{plan_id}", { params });
      go("/plans");
    }
  });
  return (
    <>
      <div class="title">
        <div>
          <h1>{record.name}</h1>
          <p class="quiet">
            <State of={record.status} /> · {record.algorithm ?? "own dataflow"}
            {record.gpus_used ? ` · ${numberOf(record.gpus_used, "GPU")}` : ""} ·{" "}
            <time dateTime={record.created_at}>{moment(record.created_at)}</time> · by{" "}
            {record.owner}
          </p>
          <Described
            of={record}
            list="plans"
            usual={record.spec_name}
            save={async (patch) => {
              const params = { path: { plan_id: record.id } };
              await api.PATCH("/v1/plans/{plan_id}", {
                params,
                body: patch as Required<DescriptionPatch>,
              });
              props.onChange();
            }}
          />
        </div>
        <a class="button" href={`#/new?from=${record.id}`}>
          Change and plan anew
        </a>
        <button type="button" disabled={remove.busy} onClick={() => void remove.run()}>
          {isOpen(record.status) ? "Cancel" : "Delete"}
        </button>
      </div>
      {remove.problem && <Trouble problem={remove.problem} />}
      {record.status === "succeeded" && (
        <nav class="tabs" aria-label="Parts of the plan">
          {PARTS.map(([name, text]) => (
            <a
              key={name}
              href={`#/plans/${record.id}${name && `/${name}`}`}
              aria-current={name === part ? "page" : undefined}
            >
              {text}
            </a>
          ))}
        </nav>
      )}
    </>
  );
}

function Part(props: { record: PlanRecord; gpus: GpuDescription[]; part: string }) {
  const { record, part } = props;
  const plan = planOf(record);
  if (isOpen(record.status))
    return (
      <p role="status">{record.status === "queued" ? "Waits for a planner." : "Being planned …"}</p>
    );
  if (part === "json" || !plan) return <Documents record={record} old={!plan} />;
  if (part === "why") return <Why id={record.id} plan={plan} />;
  if (part === "what-if") return <WhatIf plan={plan} />;
  if (part === "export") return <Export id={record.id} />;
  return <Whole record={record} plan={plan} gpus={props.gpus} />;
}

function Whole(props: { record: PlanRecord; plan: Plan; gpus: GpuDescription[] }) {
  const { plan, record } = props;
  const links = useLinks();
  const drawn = useMemo(() => {
    const events = eventsOf(plan);
    return {
      events,
      segments: segmentsOf(plan, events),
      colours: roleColours(plan),
      pools: poolsOf(plan, props.gpus),
    };
  }, [plan]);
  const { events, segments, colours, pools } = drawn;
  const rest = plan.assumptions.filter((line) => !(plan.warnings ?? []).includes(line));
  return (
    <LinkedContext.Provider value={links}>
      <Headline plan={plan} />
      <div class="wall">
        <div>
          <section aria-labelledby="chart">
            <h2 id="chart">
              {plan.staleness || !plan.iteration_barrier
                ? "One period of the repeating schedule"
                : "One iteration"}
            </h2>
            <Gantt plan={plan} segments={segments} colours={colours} />
          </section>
          <section aria-labelledby="calls">
            <h2 id="calls">Calls</h2>
            <Calls plan={plan} events={events} colours={colours} />
          </section>
        </div>
        <div class="columns">
          <section aria-labelledby="map">
            <h2 id="map">GPUs</h2>
            <GpuMap plan={plan} pools={pools} segments={segments} colours={colours} />
          </section>
          <Memory segments={segments} />
        </div>
        <div>
          <PlanCosts id={record.id} />
          <Runs record={record} />
        </div>
      </div>
      {rest.length > 0 && (
        <details>
          <summary>{numberOf(rest.length, "assumption")}</summary>
          <ul class="notes">
            {rest.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </details>
      )}
      <p class="quiet">
        {`${count(plan.search.candidates_priced)} settings priced`}
        {plan.search.stopped ? `; ${plan.search.stopped}` : ""}.
      </p>
    </LinkedContext.Provider>
  );
}

function Runs({ record }: { record: PlanRecord }) {
  if (!record.jobs?.length) return null;
  return (
    <section aria-labelledby="runs">
      <h2 id="runs">Runs</h2>
      <Table label="Runs" columns={["State", "Made", "#Iterations", "#Measured s", "#Predicted s"]}>
        {record.jobs.map((job) => (
          <tr key={job.id}>
            <td>
              <State of={job.status} />
            </td>
            <th scope="row">
              <a href={`#/jobs/${job.id}`}>{moment(job.created_at)}</a>
            </th>
            <td class="number">{`${job.iteration} of ${job.iterations}`}</td>
            <td class="number">{job.measured_iteration_seconds?.toFixed(2) ?? "–"}</td>
            <td class="number">{job.predicted_iteration_seconds?.toFixed(2) ?? "–"}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Documents({ record, old }: { record: PlanRecord; old: boolean }) {
  const spec = JSON.stringify(record.spec, null, 2);
  const plan = record.plan ? JSON.stringify(record.plan, null, 2) : null;
  return (
    <>
      {old && record.plan && (
        <p>An earlier version made this plan; this one shows it as it was stored.</p>
      )}
      <section aria-labelledby="spec">
        <h2 id="spec">Job spec</h2>
        <Copy text={spec} what="the spec" />
        <pre tabIndex={0} aria-labelledby="spec">
          {spec}
        </pre>
      </section>
      {plan && (
        <section aria-labelledby="document">
          <h2 id="document">Plan</h2>
          <Copy text={plan} what="the plan" />
          <pre tabIndex={0} aria-labelledby="document">
            {plan}
          </pre>
        </section>
      )}
    </>
  );
}
