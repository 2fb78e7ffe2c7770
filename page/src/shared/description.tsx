/** What a plan or job is called, whose it is, its labels and notes; and the form that changes them. */
import { useEffect, useRef, useState } from "preact/hooks";
import { useAction } from "../api/resource";
import type { Description, DescriptionPatch } from "../api/types";
import { Trouble } from "./parts";

type Labels = Record<string, string>;

export function labelsOf(labels: Labels): string[] {
  return Object.entries(labels).map(([key, value]) => (value ? `${key}:${value}` : key));
}

/** Labels as they are written: `team:math draft`. */
function read(text: string): Labels {
  const words = text.split(/[\s,]+/).filter(Boolean);
  return Object.fromEntries(
    words.map((word) => {
      const [key = "", ...value] = word.split(":");
      return [key, value.join(":")];
    }),
  );
}

/** Labels lead to what else has them; the button opens the form. */
export function Described(props: {
  of: Description;
  list: "plans" | "jobs";
  /** The name it has when it is not renamed. */
  usual: string;
  save: (patch: DescriptionPatch) => Promise<unknown>;
}) {
  const [open, setOpen] = useState(false);
  const { of } = props;
  return (
    <div class="described">
      <Labels labels={of.labels ?? {}} list={props.list} />
      {of.notes && <p class="noted">{of.notes}</p>}
      {open ? (
        <Form of={of} usual={props.usual} save={props.save} close={() => setOpen(false)} />
      ) : (
        <button type="button" class="plain" onClick={() => setOpen(true)}>
          Edit name, labels, notes
        </button>
      )}
    </div>
  );
}

export function Labels({ labels, list }: { labels: Labels; list: "plans" | "jobs" }) {
  return (
    <>
      {labelsOf(labels).map((each) => (
        <a key={each} class="label" href={`#/${list}?label=${encodeURIComponent(each)}`}>
          {each}
        </a>
      ))}
    </>
  );
}

function Form(props: {
  of: Description;
  usual: string;
  save: (patch: DescriptionPatch) => Promise<unknown>;
  close: () => void;
}) {
  const before = props.of.labels ?? {};
  const first = useRef<HTMLInputElement | null>(null);
  useEffect(() => first.current?.focus(), []);
  const [name, setName] = useState(props.of.name || props.usual);
  const [labels, setLabels] = useState(labelsOf(before).join(" "));
  const [notes, setNotes] = useState(props.of.notes ?? "");
  const save = useAction(async () => {
    const after = read(labels);
    const gone = Object.keys(before).filter((key) => !(key in after));
    await props.save({
      name: name.trim() && name.trim() !== props.usual ? name.trim() : null,
      labels: { ...after, ...Object.fromEntries(gone.map((key) => [key, null])) },
      notes: notes.trim() || null,
    });
    props.close();
  });
  return (
    <form
      class="describe"
      aria-label="Name, labels, notes"
      onSubmit={(event) => {
        event.preventDefault();
        void save.run();
      }}
    >
      <label>
        Name
        <input
          ref={first}
          value={name}
          maxLength={200}
          placeholder={props.usual}
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </label>
      <label>
        Labels, key or key:value
        <input value={labels} onInput={(event) => setLabels(event.currentTarget.value)} />
      </label>
      <label class="wide">
        Notes
        <textarea
          rows={3}
          maxLength={10_000}
          value={notes}
          onInput={(event) => setNotes(event.currentTarget.value)}
        />
      </label>
      <p class="row wide">
        <button type="submit" class="primary" disabled={save.busy}>
          Save
        </button>
        <button type="button" onClick={props.close}>
          Leave as it was
        </button>
      </p>
      {save.problem && <Trouble problem={save.problem} />}
    </form>
  );
}
