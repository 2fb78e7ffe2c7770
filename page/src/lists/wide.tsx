/** What a list says in columns of its own where the screen is as wide as a wall. */
import { useEffect, useState } from "preact/hooks";
import type { Description } from "../api/types";
import { Labels } from "../shared/description";

/** As in style/screens.css. */
const WALL = "(min-width: 2200px)";

export function useWall(): boolean {
  const [wall, setWall] = useState(() => matchMedia(WALL).matches);
  useEffect(() => {
    const query = matchMedia(WALL);
    const look = () => setWall(query.matches);
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, []);
  return wall;
}

export const WHOSE_COLUMNS = ["Owner", "Labels", "Notes"];

export function WhoseCells({ of, list }: { of: Description; list: "plans" | "jobs" }) {
  return (
    <>
      <td>
        <a href={`#/${list}?owner=${encodeURIComponent(of.owner ?? "")}`}>{of.owner}</a>
      </td>
      <td>
        <Labels labels={of.labels ?? {}} list={list} />
      </td>
      <td class="note" title={of.notes ?? undefined}>
        {of.notes}
      </td>
    </>
  );
}
