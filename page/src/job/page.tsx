/** A job while it runs and after: progress, reward, seconds beside the plan's, drift, log. */
import { api } from "../api/client";
import { useResource } from "../api/resource";
import {
  isOpen,
  type JobSuggestion,
  type ProfileJobRecord,
  type RunRecord,
} from "../api/types";
import type { Place } from "../router";
import { Line } from "../shared/charts";
import * as format from "../shared/format";
import { Figure, Loaded, Table, Trouble, useTitle } from "../shared/parts";
import { REWARD, useEvents } from "./events";
import { nameOf, Title } from "./title";

export function JobPage({ place }: { place: Place }) {
  const id = place.path[1] ?? "";
  const record = useResource(
    id,
    () => api.GET("/v1/jobs/{job_id}", { params: { path: { job_id: id } } }),
    (job) => (isOpen(job.status) ? 2 : null),
  );
  const job = record.data;
  useTitle(job ? nameOf(job) : "Job");
  return (
    <Loaded from={record}>
      {(found) => (
        <>
          <Title job={found} onChange={record.reload} />
          {found.problem && <Trouble problem={found.problem} />}
          {found.waits_for && <p role="status">Waits for {found.waits_for}.</p>}
          {found.kind === "run" &&
            (found.warnings ?? []).map((warning) => (
              <p key={warning} class="warnings" role="status">
                ⚠ {warning}.
              </p>
            ))}
          <div class="wall">
            <div>
              {found.kind === "profile" ? <Measurement job={found} /> : <Run job={found} />}
            </div>
            <Log id={found.id} open={isOpen(found.status)} />
          </div>
        </>
      )}
    </Loaded>
  );
}

function Run({ job }: { job: RunRecord }) {
  const events = useEvents(job.id);
  const { measured_iteration_seconds: measured, predicted_iteration_seconds: predicted } = job;
  return (
    <>
      <p class="progress">
        <progress value={job.iteration} max={job.iterations || 1} aria-label="Iterations done" />{" "}
        <span role="status">
          {job.iteration} of {format.numberOf(job.iterations, "iteration")}
        </span>
      </p>
      <dl class="figures">
        <Figure name="Per iteration" value={measured ? `${format.seconds(measured)} s` : "–"}>
          measured
        </Figure>
        <Figure name="Predicted" value={predicted ? `${format.seconds(predicted)} s` : "–"}>
          {measured && predicted ? `measured ${format.change(measured / predicted - 1)}` : ""}
        </Figure>
        <Figure name="Reward" value={events.reward.at(-1)?.[1].toPrecision(3) ?? "–"}>
          {REWARD}
        </Figure>
        <Drift job={job} />
      </dl>
      {(job.suggestions ?? []).map((each) => (
        <Suggested key={each.event} suggestion={each} />
      ))}
      <div class="columns">
        <section aria-labelledby="reward">
          <h2 id="reward">Reward</h2>
          <Lines points={events.reward} label="Reward over iterations" />
        </section>
        <section aria-labelledby="iterations">
          <h2 id="iterations">
            Seconds of an iteration <span class="quiet">dashed: predicted</span>
          </h2>
          <Lines
            points={events.iterations}
            label="Seconds over iterations, measured and predicted"
            predicted={predicted ?? null}
          />
        </section>
      </div>
      <CallSeconds job={job} />
    </>
  );
}

/** Whether it runs, or ran, as planned: `drifting` is only of jobs that are not over. */
function Drift({ job }: { job: RunRecord }) {
  const told = job.suggestions ?? [];
  const open = isOpen(job.status);
  const stands = told.some((each) => each.over_after_iteration == null);
  const [value, note] =
    open && job.drifting
      ? ["⚠ drifts", "runs otherwise than planned"]
      : !open && (stands || job.drift?.replan)
        ? ["⚠ drifted", "ran otherwise than planned"]
        : told.length
          ? ["over", "as planned again"]
          : job.measured_iteration_seconds
            ? ["none", "as planned"]
            : ["–", "nothing is measured"];
  return (
    <Figure name="Drift" value={value!}>
      {note}
    </Figure>
  );
}

function Lines(props: { points: [number, number][]; label: string; predicted?: number | null }) {
  if (props.points.length < 2) return <p class="quiet">Drawn after two iterations.</p>;
  const last = props.points.at(-1);
  return (
    <Line
      {...props}
      label={`${props.label}: ${format.general(last?.[1] ?? 0, 3)} after ${last?.[0] ?? 0}`}
    />
  );
}

function CallSeconds({ job }: { job: RunRecord }) {
  return (
    <section aria-labelledby="seconds">
      <h2 id="seconds">Seconds of calls</h2>
      <Table
        label="Seconds of calls"
        columns={["Call", "#Predicted", "#Measured", "#Off by", "#Times"]}
      >
        {job.calls.map((call) => {
          const both = call.measured_seconds && call.predicted_seconds;
          return (
            <tr key={call.call}>
              <th scope="row">{call.call}</th>
              <td class="number">{format.known(call.predicted_seconds, format.seconds)}</td>
              <td class="number strong">{format.known(call.measured_seconds, format.seconds)}</td>
              <td class="number">
                {both ? format.change(call.measured_seconds! / call.predicted_seconds! - 1) : "–"}
              </td>
              <td class="number">{format.count(call.count)}</td>
            </tr>
          );
        })}
      </Table>
    </section>
  );
}

function Suggested({ suggestion: told }: { suggestion: JobSuggestion }) {
  const { drift, causes, replan, without_node, problem } = told.suggestion;
  const off = drift.iteration_seconds.measured / drift.iteration_seconds.planned - 1;
  return (
    <section
      class="warnings"
      aria-label={`Drift after iteration ${told.suggestion.after_iteration}`}
    >
      <p>
        <strong>
          {told.over_after_iteration == null ? "⚠ Drift" : "Drift, over"} after iteration{" "}
          {told.suggestion.after_iteration}:
        </strong>{" "}
        iterations take {format.seconds(drift.iteration_seconds.measured)} s, planned{" "}
        {format.seconds(drift.iteration_seconds.planned)} s ({format.change(off)})
        {told.over_after_iteration != null &&
          `; as planned again after ${told.over_after_iteration}`}
        .
      </p>
      <ul>
        {(causes ?? []).map((cause) => (
          <li key={cause.kind + cause.calls.join()}>
            {cause.kind.replaceAll("_", " ")}: {cause.calls.join(", ") || cause.device} (
            {format.change(cause.ratio - 1)})
          </li>
        ))}
        {replan && <li>{replan.answer}</li>}
        {without_node && (
          <li>
            Without node {without_node.node} of {without_node.pool}:{" "}
            {format.seconds(without_node.iteration_seconds)} s per iteration
          </li>
        )}
        {problem && <li>{problem}</li>}
      </ul>
    </section>
  );
}

function Measurement({ job }: { job: ProfileJobRecord }) {
  return (
    <>
      <p class="progress">
        <progress value={job.seconds} max={job.budget_seconds || 1} aria-label="Seconds used" />{" "}
        {Math.round(job.seconds)} of {Math.round(job.budget_seconds)} s
      </p>
      <Table label="Shapes measured" columns={["Table", "#Done", "#Wanted"]}>
        {job.tables.map((each) => (
          <tr key={each.table}>
            <th scope="row">{each.table}</th>
            <td class="number">{format.count(each.done)}</td>
            <td class="number">{format.count(each.wanted)}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}

function Log({ id, open }: { id: string; open: boolean }) {
  const log = useResource(
    `log ${id} ${open}`,
    () =>
      api.GET("/v1/jobs/{job_id}/logs", {
        params: { path: { job_id: id }, query: { tail: 200 } },
      }),
    () => (open ? 3 : null),
  );
  return (
    <section aria-labelledby="log">
      <h2 id="log">
        Log <span class="quiet">the last 200 lines</span>
      </h2>
      <Loaded from={log}>
        {(text) => (
          <pre class="log" tabIndex={0} aria-labelledby="log">
            {text || "Nothing was printed yet."}
          </pre>
        )}
      </Loaded>
    </section>
  );
}
