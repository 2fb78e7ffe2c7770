/** What both lists share: filters in the address, pages one after another. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { problemOf } from "../api/resource";
import type { Problem } from "../api/types";
import { withQuery, type Place } from "../router";

export function Choice(props: {
  label: string;
  value: string;
  among: readonly string[];
  onChange: (value: string) => void;
}) {
  return (
    <label>
      {props.label}
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        <option value="">any</option>
        {props.among.map((each) => (
          <option key={each} value={each}>
            {each}
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

export function labelsOf(row: { labels: Record<string, string> }): string[] {
  return Object.entries(row.labels).map(([key, value]) => (value ? `${key}:${value}` : key));
}

interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

/** Items page by page; those of the first page are asked for again every so often. */
export function usePages<T extends { id: string }>(
  name: string,
  load: (cursor: string | null) => Promise<Page<T>>,
) {
  const [items, setItems] = useState<T[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    let over = false;
    const ask = async (again: boolean) => {
      try {
        const page = await load(null);
        if (over) return;
        setProblem(null);
        // Later pages stay, with what is new before them.
        const fresh = new Set(page.items.map((each) => each.id));
        setItems((before) =>
          again && before
            ? [
                ...page.items,
                ...before.slice(page.items.length).filter((each) => !fresh.has(each.id)),
              ]
            : page.items,
        );
        if (!again) setNext(page.next_cursor ?? null);
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
      setItems((before) => [...(before ?? []), ...page.items]);
      setNext(page.next_cursor ?? null);
    } catch (error) {
      setProblem(problemOf(error));
    }
  };
  return { items, problem, more: next === null ? null : more };
}
