/** Small parts that several views are made of. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../api/types";
import { gib } from "./format";

const STATES: Record<string, string> = {
  queued: "○",
  starting: "◔",
  running: "◑",
  succeeded: "✓",
  failed: "✕",
  cancelled: "–",
};

/** A state as a sign and a word, so that its colour says nothing that they do not. */
export function State({ of }: { of: string }) {
  return (
    <span class={`state state-${of}`}>
      <span aria-hidden="true">{STATES[of] ?? "·"}</span> {of}
    </span>
  );
}

export function Trouble({ problem }: { problem: Problem }) {
  return (
    <section class="trouble" role="alert">
      <h2>{problem.title}</h2>
      {problem.errors.length === 0 && problem.reasons.length === 0 && <p>{problem.detail}</p>}
      <ul>
        {problem.errors.map((each) => (
          <li key={each.field + each.message}>
            <code>{each.field}</code>: {each.message}
            {each.remedy && <em> {each.remedy}</em>}
          </li>
        ))}
        {problem.reasons.map((each) => (
          <li key={each.summary}>
            {each.summary}
            {each.over_bytes ? ` (${gib(each.over_bytes)} GiB too many)` : ""}
            {each.remedy && <em> {each.remedy}</em>}
          </li>
        ))}
      </ul>
      {problem.remedies.length > 0 && (
        <ul>
          {problem.remedies.map((each) => (
            <li key={each.change}>It would fit if you {each.change}.</li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** What there is to show, what went wrong, or that it is still to come. */
export function Loaded<T>(props: {
  from: { data: T | null; problem: Problem | null };
  children: (data: T) => ComponentChildren;
}) {
  const { data, problem } = props.from;
  return (
    <>
      {problem && <Trouble problem={problem} />}
      {data !== null ? (
        props.children(data)
      ) : problem ? null : (
        <p class="quiet" role="status">
          Loading …
        </p>
      )}
    </>
  );
}

/** A table that scrolls by itself where it is too wide, by keyboard, too. */
export function Table(props: {
  label: string;
  /** Heads; those of numbers begin with #. */
  columns: string[];
  children: ComponentChildren;
  class?: string;
}) {
  return (
    <div class="scroller" role="group" aria-label={props.label} tabIndex={0}>
      <table class={props.class ?? ""}>
        <thead>
          <tr>
            {props.columns.map((each) => (
              <th key={each} scope="col" class={each.startsWith("#") ? "number" : ""}>
                {each.replace(/^#/, "")}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{props.children}</tbody>
      </table>
    </div>
  );
}

/** A figure with its name and what belongs to it. */
export function Figure(props: { name: string; value: string; children?: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{props.name}</dt>
      <dd>
        <strong class={props.value.length > 18 ? "long" : ""}>{props.value}</strong>
        {props.children && <span>{props.children}</span>}
      </dd>
    </div>
  );
}

export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("Copied");
    } catch {
      setDone("The browser does not let the page copy: select the text instead");
    }
  };
  return (
    <span class="copy">
      <button type="button" onClick={() => void copy()}>
        Copy {what}
      </button>{" "}
      <span role="status">{done}</span>
    </span>
  );
}

interface Size {
  width: number;
  /** How much larger than usual text is: on a wall, or where a person wants it so. */
  scale: number;
}

const USUAL_TEXT = 14;

/** The width of an element in pixels, kept up to date. */
export function useSize(): [{ current: HTMLDivElement | null }, Size] {
  const element = useRef<HTMLDivElement | null>(null);
  const [size, setSize] = useState<Size>({ width: 0, scale: 1 });
  useLayoutEffect(() => {
    const node = element.current;
    if (!node) return;
    const measure = () => {
      const text = parseFloat(getComputedStyle(document.documentElement).fontSize);
      setSize({ width: node.clientWidth, scale: text / USUAL_TEXT });
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(node);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} – Automap`;
  }, [title]);
}
