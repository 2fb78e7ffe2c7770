/** What both lists share: filters in the address, pages one after another. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { csvOf } from "../api/client";
import { problemOf, useAction } from "../api/resource";
import type { Description, Problem } from "../api/types";
import { withQuery, type Place } from "../router";
import { Labels } from "../shared/description";
import { Trouble } from "../shared/parts";

export function Choice(props: {
  label: string;
  value: string;
  among: readonly string[];
  onChange: (value: string) => void;
  /** What the choice says that chooses nothing. */
  none?: string;
  /** A text for each, where it is not its name. */
  texts?: Record<string, string>;
}) {
  return (
    <label>
      {props.label}
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        <option value="">{props.none ?? "any"}</option>
        {props.among.map((each) => (
          <option key={each} value={each}>
            {props.texts?.[each] ?? each}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Filters(props: { place: Place; children: ComponentChildren; hint: string }) {
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label class="grow">
        Search
        <input
          type="search"
          placeholder={props.hint}
          value={props.place.query.get("q") ?? ""}
          onInput={(event) => withQuery(props.place, { q: event.currentTarget.value })}
        />
      </label>
      {props.children}
    </form>
  );
}

const ASKED = ["q", "label", "owner"] as const;
type Asked = { q?: string; label?: string[]; owner?: string };

/** What the address asks of either list. */
export function askedOf(place: Place): Asked {
  const found = ASKED.map((name) => [name, (place.query.get(name) ?? "").trim()] as const);
  const { label, ...others } = Object.fromEntries(found.filter(([, value]) => value)) as {
    [name: string]: string;
  };
  return { ...others, ...(label && { label: [label] }) };
}

/** The label and the owner that rows must have: chosen by a click on a row's, taken off here. */
export function Narrowed({ place }: { place: Place }) {
  return (
    <>
      {(["label", "owner"] as const).map((name) => {
        const value = place.query.get(name);
        return value ? (
          <button
            key={name}
            type="button"
            aria-label={`Whatever the ${name}, not only ${value}`}
            onClick={() => withQuery(place, { [name]: "" })}
          >
            {name} {value} <span aria-hidden="true">✕</span>
          </button>
        ) : null;
      })}
    </>
  );
}

/** All rows that are asked for as a file: a link could not send the key. */
export function Csv({ list, query }: { list: "plans" | "jobs"; query: object }) {
  const fetched = useAction(async () => {
    const text = await csvOf(`/v1/${list}`, query);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${list}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  return (
    <>
      <button type="button" disabled={fetched.busy} onClick={() => void fetched.run()}>
        CSV
      </button>
      {fetched.problem && <Trouble problem={fetched.problem} />}
    </>
  );
}

/** Who posted it, and its labels: each narrows the list to those that have it, too. */
export function Whose(props: { of: Description; list: "plans" | "jobs"; first: string }) {
  const { of, list } = props;
  return (
    <small>
      {props.first} · by{" "}
      <a href={`#/${list}?owner=${encodeURIComponent(of.owner ?? "")}`}>{of.owner}</a>{" "}
      <Labels labels={of.labels ?? {}} list={list} />
    </small>
  );
}

interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

/** What was shown after the end of a page that is asked for again, and stays. */
function laterThan<T extends { id: string }>(page: Page<T>, before: T[]): T[] {
  if (!page.next_cursor) return [];
  const end = before.findIndex(({ id }) => id === page.items.at(-1)?.id);
  const fresh = new Set(page.items.map(({ id }) => id));
  return end < 0 ? [] : before.slice(end + 1).filter(({ id }) => !fresh.has(id));
}

/** Items page by page; those of the first page are asked for again every so often. */
export function usePages<T extends { id: string }>(
  name: string,
  load: (cursor: string | null) => Promise<Page<T>>,
) {
  const [items, setItems] = useState<T[] | null>(null);
  const shown = useRef<T[]>([]);
  const show = (found: T[]) => {
    shown.current = found;
    setItems(found);
  };
  const [next, setNext] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    let over = false;
    const ask = async (again: boolean) => {
      try {
        const page = await load(null);
        if (over) return;
        setProblem(null);
        const later = again ? laterThan(page, shown.current) : [];
        show([...page.items, ...later]);
        // What goes on where the first page ends; later pages have a cursor of their own.
        if (later.length === 0) setNext(page.next_cursor ?? null);
      } catch (error) {
        if (!over) setProblem(problemOf(error));
      }
    };
    void ask(false);
    const timer = window.setInterval(() => !document.hidden && void ask(true), 5000);
    return () => {
      over = true;
      window.clearInterval(timer);
    };
  }, [name]);
  const more = async () => {
    try {
      const page = await load(next);
      show([...shown.current, ...page.items]);
      setNext(page.next_cursor ?? null);
    } catch (error) {
      setProblem(problemOf(error));
    }
  };
  return { items, problem, more: next === null ? null : more };
}
