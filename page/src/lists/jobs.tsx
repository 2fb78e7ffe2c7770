import { api } from "../api/client";
import type { JobSummary } from "../api/types";
import { withQuery, type Place } from "../router";
import { moment, seconds } from "../shared/format";
import { State, Table, Trouble, useTitle } from "../shared/parts";
import { Choice, Filters, labelsOf, usePages } from "./filters";

const STATES = ["queued", "starting", "running", "succeeded", "failed", "cancelled"] as const;
const KINDS = ["run", "profile"] as const;

const COLUMNS = ["State", "Job", "Progress", "#s / iteration", "#Predicted s", "Drift", "Made"];

export function JobList({ place }: { place: Place }) {
  useTitle("Jobs");
  const status = STATES.find((each) => each === place.query.get("status"));
  const kind = KINDS.find((each) => each === place.query.get("kind"));
  const words = (place.query.get("q") ?? "").trim();
  const pages = usePages(`${status} ${kind} ${words}`, (cursor) =>
    api.GET("/v1/jobs", {
      params: {
        query: {
          ...(status && { status }),
          ...(kind && { kind }),
          ...(words && { q: words }),
          ...(cursor && { cursor }),
        },
      },
    }),
  );
  const shown = pages.items;
  return (
    <>
      <div class="title">
        <h1>Jobs</h1>
      </div>
      <Filters place={place} hint="name, owner, label, note, model, algorithm">
        <Choice
          label="State"
          value={status ?? ""}
          among={STATES}
          onChange={(value) => withQuery(place, { status: value })}
        />
        <Choice
          label="Kind"
          value={kind ?? ""}
          among={KINDS}
          onChange={(value) => withQuery(place, { kind: value })}
        />
      </Filters>
      {pages.problem && <Trouble problem={pages.problem} />}
      {shown && shown.length > 0 && (
        <Table label="Jobs" class="list" columns={COLUMNS}>
          {shown.map((job) => (
            <Row key={job.id} job={job} />
          ))}
        </Table>
      )}
      {shown?.length === 0 && <p class="quiet">There are no such jobs.</p>}
      {pages.more && (
        <p>
          <button type="button" onClick={() => void pages.more?.()}>
            Older jobs
          </button>
        </p>
      )}
    </>
  );
}

function nameOf(job: JobSummary): string {
  return job.kind === "run" ? job.name : "measurement of the cluster";
}

function Row({ job }: { job: JobSummary }) {
  const run = job.kind === "run" ? job : null;
  const [done, of] =
    job.kind === "run" ? [job.iteration, job.iterations] : [job.seconds, job.budget_seconds];
  return (
    <tr>
      <td>
        <State of={job.status} />
      </td>
      <th scope="row">
        <a href={`#/jobs/${job.id}`}>{nameOf(job)}</a>
        <small>
          {[run ? (run.algorithm ?? "own dataflow") : "profile", ...labelsOf(job)].join(" · ")}
        </small>
      </th>
      <td data-label="Progress">
        <progress value={done} max={of || 1} aria-label={`Progress of ${nameOf(job)}`} />{" "}
        {run ? `${done} of ${of}` : `${Math.round(done)} of ${Math.round(of)} s`}
      </td>
      <td class="number" data-label="s / iteration">
        {run?.measured_iteration_seconds ? seconds(run.measured_iteration_seconds) : "–"}
      </td>
      <td class="number" data-label="Predicted s">
        {run?.predicted_iteration_seconds ? seconds(run.predicted_iteration_seconds) : "–"}
      </td>
      <td data-label="Drift">{run?.drifting ? "⚠ drifts" : "–"}</td>
      <td data-label="Made">
        <time dateTime={job.created_at}>{moment(job.created_at)}</time>
      </td>
    </tr>
  );
}
