import { api } from "../api/client";
import type { JobSummary } from "../api/types";
import { withQuery, type Place } from "../router";
import { count, moment, seconds } from "../shared/format";
import { State, Table, Trouble, useTitle } from "../shared/parts";
import { askedOf, Choice, Csv, Filters, Narrowed, usePages, Whose } from "./filters";
import { useWall, WHOSE_COLUMNS, WhoseCells } from "./wide";

const STATES = ["queued", "starting", "running", "succeeded", "failed", "cancelled"] as const;
const KINDS = ["run", "profile"] as const;

const SORT_TEXTS = { created_at: "oldest first", name: "name" } as const;
const SORTS = Object.keys(SORT_TEXTS) as (keyof typeof SORT_TEXTS)[];

const COLUMNS = ["State", "Job", "Progress", "#s / iteration", "#Predicted s", "Drift", "Made"];
const WALL_COLUMNS = [...COLUMNS.slice(0, 2), "Algorithm", ...COLUMNS.slice(2), ...WHOSE_COLUMNS];

export function JobList({ place }: { place: Place }) {
  useTitle("Jobs");
  const status = STATES.find((each) => each === place.query.get("status"));
  const kind = KINDS.find((each) => each === place.query.get("kind"));
  const sort = SORTS.find((each) => each === place.query.get("sort"));
  const query = {
    ...askedOf(place),
    ...(sort && { sort }),
    ...(status && { status }),
    ...(kind && { kind }),
  };
  const pages = usePages(JSON.stringify(query), (cursor) =>
    api.GET("/v1/jobs", {
      params: {
        query: { ...query, ...(cursor && { cursor }) },
      },
    }),
  );
  const shown = pages.items;
  const wall = useWall();
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
        <Choice
          label="Order"
          value={sort ?? ""}
          among={SORTS}
          none="latest first"
          texts={SORT_TEXTS}
          onChange={(value) => withQuery(place, { sort: value })}
        />
        <Csv list="jobs" query={query} />
        <Narrowed place={place} />
      </Filters>
      {pages.problem && <Trouble problem={pages.problem} />}
      {shown && shown.length > 0 && (
        <Table label="Jobs" class="list" columns={wall ? WALL_COLUMNS : COLUMNS}>
          {shown.map((job) => (
            <Row key={job.id} job={job} wall={wall} />
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
  return job.name || "measurement of the cluster";
}

function Row({ job, wall }: { job: JobSummary; wall: boolean }) {
  const run = job.kind === "run" ? job : null;
  const algorithm = run ? (run.algorithm ?? "own dataflow") : "profile";
  const [done, of] =
    job.kind === "run" ? [job.iteration, job.iterations] : [job.seconds, job.budget_seconds];
  return (
    <tr>
      <td>
        <State of={job.status} />
      </td>
      <th scope="row">
        <a href={`#/jobs/${job.id}`}>{nameOf(job)}</a>
        {!wall && <Whose of={job} list="jobs" first={algorithm} />}
      </th>
      {wall && <td>{algorithm}</td>}
      <td data-label="Progress">
        <progress value={done} max={of || 1} aria-label={`Progress of ${nameOf(job)}`} />{" "}
        {run ? `${count(done)} of ${count(of)}` : `${Math.round(done)} of ${Math.round(of)} s`}
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
      {wall && <WhoseCells of={job} list="jobs" />}
    </tr>
  );
}
