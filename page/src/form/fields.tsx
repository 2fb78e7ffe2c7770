/** Fields of the form: each shows and changes one value of the spec, and what is wrong with it. */
import { useId } from "preact/hooks";
import { valueAt, type Path, type Remark, type Spec } from "./spec";

export interface Writing {
  spec: Spec;
  remarks: Remark[];
  change: (path: Path, value: unknown) => void;
}

interface FieldProps {
  writing: Writing;
  path: Path;
  label: string;
}

function useRemark({ writing, path }: FieldProps) {
  const id = useId();
  const field = path.join(".");
  const remark = writing.remarks.find(
    (each) => each.field === field || each.field.startsWith(`${field}.`),
  );
  const about = remark ? { "aria-invalid": true, "aria-describedby": id } : {};
  const note = remark ? (
    <span id={id} class="wrong">
      {remark.message}
    </span>
  ) : null;
  return { about, note };
}

export function Field(props: FieldProps & { number?: boolean }) {
  const { writing, path, label, number } = props;
  const { about, note } = useRemark(props);
  const value = valueAt(writing.spec, path);
  const write = (text: string) => {
    if (text === "") writing.change(path, undefined);
    else writing.change(path, number && Number.isFinite(Number(text)) ? Number(text) : text);
  };
  return (
    <label data-field={path.join(".")}>
      {label}
      <input
        type="text"
        inputMode={number ? "decimal" : "text"}
        value={value === undefined || value === null ? "" : String(value)}
        onInput={(event) => write(event.currentTarget.value)}
        {...about}
      />
      {note}
    </label>
  );
}

export function Select(
  props: FieldProps & {
    among: string[];
    optional?: boolean;
    value?: string;
    onChange?: (value: string) => void;
  },
) {
  const { writing, path, label, among } = props;
  const { about, note } = useRemark(props);
  const value = props.value ?? String(valueAt(writing.spec, path) ?? "");
  const change =
    props.onChange ?? ((to: string) => writing.change(path, to === "" ? undefined : to));
  return (
    <label data-field={path.join(".")}>
      {label}
      <select value={value} onChange={(event) => change(event.currentTarget.value)} {...about}>
        {(props.optional || value === "") && <option value="">–</option>}
        {among.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ))}
      </select>
      {note}
    </label>
  );
}
