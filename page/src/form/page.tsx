/** A form that writes a job spec, with its YAML beside it; either may be changed. */
import { useEffect, useState } from "preact/hooks";
import { api, planYaml } from "../api/client";
import { useAction, useResource } from "../api/resource";
import type { CatalogueModel, GpuDescription } from "../api/types";
import { go, type Place } from "../router";
import { Loaded, Trouble, useTitle } from "../shared/parts";
import { Field, Select, type Writing } from "./fields";
import { changed, read, serviceRemarks, START, valueAt, written, type Spec } from "./spec";

/** Roles that an algorithm calls; the last may be left out where there is no KL term. */
const ROLES: Record<string, string[]> = {
  ppo: ["actor", "critic", "reward", "reference"],
  grpo: ["actor", "reward", "reference"],
  rloo: ["actor", "reward", "reference"],
  remax: ["actor", "reward", "reference"],
  reinforce_plus_plus: ["actor", "reward", "reference"],
  dapo: ["actor", "reward"],
  safe_rlhf: ["actor", "critic", "reward", "cost", "reference"],
};
const FUNCTION = "(function on the host)";

export function FormPage({ place }: { place: Place }) {
  useTitle("New plan");
  const from = place.query.get("from");
  const known = useResource(`new ${from}`, async () => {
    const [models, gpus, text] = await Promise.all([
      api.GET("/v1/models"),
      api.GET("/v1/gpus"),
      from ? specOf(from) : START,
    ]);
    return { models, gpus, text };
  });
  return (
    <>
      <h1>New plan</h1>
      <Loaded from={known}>{(found) => <Form {...found} />}</Loaded>
    </>
  );
}

async function specOf(id: string): Promise<string> {
  const asked = api.GET("/v1/plans/{plan_id}", { params: { path: { plan_id: id } } });
  const [record, schema] = await Promise.all([asked, api.GET("/v1/schemas/job-spec")]);
  return written(record.spec, schema as Parameters<typeof written>[1]);
}

function Form(props: { models: CatalogueModel[]; gpus: GpuDescription[]; text: string }) {
  const [spec, setSpec] = useState<Spec>(() => read(props.text));
  useEffect(() => setSpec(read(props.text)), [props.text]);
  const [sent, setSent] = useState("");
  const plan = useAction(async () => {
    setSent(spec.text);
    const record = await planYaml(spec.text);
    go(`/plans/${record.id}`);
  });
  // What the service said holds for the text that it was sent.
  const told = sent === spec.text ? plan.problem : null;
  const remarks = [...spec.remarks, ...serviceRemarks(spec, told?.errors ?? [])];
  const writing: Writing = {
    spec,
    remarks,
    change: (path, value) => setSpec(changed(spec, path, value)),
  };
  return (
    <div class="form">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void plan.run();
        }}
      >
        {spec.document.errors.length > 0 ? (
          <p class="quiet">The fields are back when the YAML can be read again.</p>
        ) : (
          <Fields writing={writing} models={props.models} gpus={props.gpus} />
        )}
        <p class="submit">
          <button type="submit" class="primary" disabled={plan.busy || spec.remarks.length > 0}>
            {plan.busy ? "Sending …" : "Plan"}
          </button>{" "}
          <span class="quiet" role="status">
            {spec.remarks.length
              ? `${spec.remarks.length} to mend first`
              : "The spec agrees with its schema."}
          </span>
        </p>
      </form>
      <section aria-labelledby="yaml">
        <h2 id="yaml">YAML</h2>
        <textarea
          aria-labelledby="yaml"
          aria-describedby="remarks"
          aria-invalid={remarks.length > 0}
          spellcheck={false}
          rows={Math.max(24, spec.text.split("\n").length + 1)}
          value={spec.text}
          onInput={(event) => setSpec(read(event.currentTarget.value))}
        />
        <ul id="remarks" class="remarks" aria-live="polite">
          {remarks.map((remark) => (
            <li key={remark.field + remark.message}>
              {remark.line !== null && <span class="quiet">line {remark.line} </span>}
              {remark.field && <code>{remark.field}</code>} {remark.message}
            </li>
          ))}
        </ul>
        {told && told.errors.length === 0 && <Trouble problem={told} />}
      </section>
    </div>
  );
}

function Fields(props: { writing: Writing; models: CatalogueModel[]; gpus: GpuDescription[] }) {
  const { writing } = props;
  const { spec } = writing;
  const algorithm = String(valueAt(spec, ["algorithm"]) ?? "");
  const named = Object.keys((valueAt(spec, ["models"]) ?? {}) as object);
  const roles = [...new Set([...named, ...(ROLES[algorithm] ?? [])])];
  const pools = valueAt(spec, ["cluster", "pools"]);
  return (
    <>
      <fieldset>
        <legend>Job</legend>
        <Field writing={writing} path={["name"]} label="Name" />
        <Select
          writing={writing}
          path={["algorithm"]}
          label="Algorithm"
          among={Object.keys(ROLES)}
        />
      </fieldset>
      <fieldset>
        <legend>Models</legend>
        {roles.map((role) => (
          <Model key={role} role={role} writing={writing} models={props.models} />
        ))}
      </fieldset>
      <fieldset>
        <legend>GPUs</legend>
        {Array.isArray(pools) ? (
          pools.map((_, index) => (
            <Pool key={index} index={index} of={pools.length} writing={writing} gpus={props.gpus} />
          ))
        ) : (
          <Field writing={writing} path={["cluster"]} label="Stored cluster" />
        )}
        {Array.isArray(pools) && (
          <button
            type="button"
            onClick={() =>
              writing.change(["cluster", "pools", pools.length], {
                name: `pool${pools.length + 1}`,
                gpu: "h100",
                num_nodes: 1,
              })
            }
          >
            One more pool
          </button>
        )}
      </fieldset>
      <fieldset>
        <legend>Workload</legend>
        {WORKLOAD.map(([label, ...path]) => (
          <Field key={label} writing={writing} path={["workload", ...path]} label={label} number />
        ))}
        <Select
          writing={writing}
          path={["workload", "kl"]}
          label="KL term"
          among={["none", "reward", "loss"]}
          optional
        />
      </fieldset>
      <fieldset>
        <legend>Search</legend>
        <Select
          writing={writing}
          path={["search", "objective"]}
          label="Objective"
          among={["throughput", "price", "run_price", "fewest_gpus"]}
          optional
        />
        <Field
          writing={writing}
          path={["search", "time_limit_seconds"]}
          label="Time limit, s"
          number
        />
      </fieldset>
    </>
  );
}

const WORKLOAD: [label: string, ...path: string[]][] = [
  ["Prompts per iteration", "prompts_per_iteration"],
  ["Responses per prompt", "responses_per_prompt"],
  ["Prompt tokens, mean", "prompt_length", "mean"],
  ["Prompt tokens, at most", "prompt_length", "max"],
  ["Response tokens, mean", "response_length", "mean"],
  ["Response tokens, at most", "response_length", "max"],
  ["Updates per epoch", "updates_per_epoch"],
  ["Iterations", "iterations"],
];

function Model(props: { role: string; writing: Writing; models: CatalogueModel[] }) {
  const { role, writing } = props;
  const model = valueAt(writing.spec, ["models", role]) as
    { architecture?: unknown; function?: boolean } | undefined;
  const names = props.models.map((each) => each.name);
  const own = model?.architecture;
  const now = model?.function ? FUNCTION : typeof own === "string" ? own : own ? "(own sizes)" : "";
  const among = [...(now && !names.includes(now) && now !== FUNCTION ? [now] : []), ...names];
  const choose = (value: string) => {
    if (!value) writing.change(["models", role], undefined);
    else if (value === FUNCTION) writing.change(["models", role], { function: true });
    else if (model && !model.function) writing.change(["models", role, "architecture"], value);
    else writing.change(["models", role], { architecture: value });
  };
  return (
    <Select
      writing={writing}
      path={["models", role]}
      label={role}
      among={[...among, FUNCTION]}
      optional
      value={now}
      onChange={choose}
    />
  );
}

function Pool(props: { index: number; of: number; writing: Writing; gpus: GpuDescription[] }) {
  const { index, writing } = props;
  const path = ["cluster", "pools", index];
  const now = String(valueAt(writing.spec, [...path, "gpu"]) ?? "");
  const known = props.gpus.find(({ gpu }) => gpu.name === now || (gpu.aliases ?? []).includes(now));
  const names = props.gpus.map(({ gpu }) => gpu.name);
  return (
    <div class="row" role="group" aria-label={`Pool ${index + 1}`}>
      <Field writing={writing} path={[...path, "name"]} label="Pool" />
      <Select
        writing={writing}
        path={[...path, "gpu"]}
        label="GPU"
        among={known || !now ? names : [now, ...names]}
        value={known?.gpu.name ?? now}
      />
      <Field writing={writing} path={[...path, "num_nodes"]} label="Nodes" number />
      <Field writing={writing} path={[...path, "gpus_per_node"]} label="GPUs per node" number />
      {props.of > 1 && (
        <button type="button" onClick={() => writing.change(path, undefined)}>
          Remove
        </button>
      )}
    </div>
  );
}
