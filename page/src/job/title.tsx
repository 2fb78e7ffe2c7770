/** What a job is called, whose it is, and what can be done to it. */
import { useState } from "preact/hooks";
import { api } from "../api/client";
import { useAction } from "../api/resource";
import { isOpen, type JobPatch, type JobRecord } from "../api/types";
import { go } from "../router";
import { Described } from "../shared/description";
import * as format from "../shared/format";
import { State, Trouble } from "../shared/parts";

export function nameOf(job: JobRecord): string {
  return job.name || usualName(job);
}

function usualName(job: JobRecord): string {
  return job.kind === "profile" ? "Measurement of the cluster" : job.spec_name;
}

export function Title({ job, onChange }: { job: JobRecord; onChange: () => void }) {
  const cancel = useAction(async () => {
    if (!window.confirm("End this job?")) return;
    await api.POST("/v1/jobs/{job_id}/cancel", { params: { path: { job_id: job.id } } });
    onChange();
  });
  const again = useAction(async () => {
    const params = { path: { job_id: job.id } };
    go(`/jobs/${(await api.POST("/v1/jobs/{job_id}/retry", { params })).id}`);
  });
  const problem = cancel.problem ?? again.problem;
  return (
    <>
      <div class="title">
        <div>
          <h1>{nameOf(job)}</h1>
          <p class="quiet">
            <State of={job.status} /> ·{" "}
            {job.kind === "run" ? (job.algorithm ?? "own dataflow") : "profile"} ·{" "}
            <time dateTime={job.created_at}>{format.moment(job.created_at)}</time> · by {job.owner}
            {job.attempts > 1 ? ` · attempt ${job.attempts}` : ""}
            {job.priority && job.status !== "queued" ? ` · priority ${job.priority}` : ""}
            {job.retry_of && (
              <>
                {" "}
                · <a href={`#/jobs/${job.retry_of}`}>repeats an earlier one</a>
              </>
            )}
          </p>
          <Described
            of={job}
            list="jobs"
            usual={usualName(job)}
            save={async (patch) => {
              const params = { path: { job_id: job.id } };
              await api.PATCH("/v1/jobs/{job_id}", {
                params,
                body: patch as Required<JobPatch>,
              });
              onChange();
            }}
          />
        </div>
        {job.kind === "run" && (
          <a class="button" href={`#/plans/${job.plan_id}`}>
            Its plan
          </a>
        )}
        {isOpen(job.status) && (
          <button
            type="button"
            disabled={cancel.busy || job.cancelling}
            onClick={() => void cancel.run()}
          >
            {job.cancelling ? "Being ended …" : "Cancel"}
          </button>
        )}
        {!isOpen(job.status) && job.kind === "run" && (
          <button type="button" disabled={again.busy} onClick={() => void again.run()}>
            Run again
          </button>
        )}
      </div>
      {problem && <Trouble problem={problem} />}
      {job.status === "queued" && <Priority key={job.priority} job={job} onChange={onChange} />}
    </>
  );
}

/** Which of the jobs that wait begins first: the one of the highest priority. */
function Priority({ job, onChange }: { job: JobRecord; onChange: () => void }) {
  const [text, setText] = useState(String(job.priority ?? 0));
  const save = useAction(async () => {
    await api.PATCH("/v1/jobs/{job_id}", {
      params: { path: { job_id: job.id } },
      body: { priority: Number(text) } as Required<JobPatch>,
    });
    onChange();
  });
  return (
    <form
      class="row"
      aria-label="Priority"
      onSubmit={(event) => {
        event.preventDefault();
        void save.run();
      }}
    >
      <label>
        Priority{" "}
        <input
          type="number"
          required
          min={-1000}
          max={1000}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <button type="submit" disabled={save.busy || Number(text) === (job.priority ?? 0)}>
        Set
      </button>
      {save.problem && <Trouble problem={save.problem} />}
    </form>
  );
}
