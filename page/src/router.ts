/** Where the page is: the path after `#`, so that the service serves one document. */
import { useEffect, useState } from "preact/hooks";

export interface Place {
  path: string[];
  query: URLSearchParams;
}

function here(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean), query: new URLSearchParams(query) };
}

export function usePlace(): Place {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const listen = () => setPlace(here());
    window.addEventListener("hashchange", listen);
    return () => window.removeEventListener("hashchange", listen);
  }, []);
  return place;
}

export function go(path: string): void {
  location.hash = path;
}

/** Changes the query without a step in the history: filters that are being typed. */
export function withQuery(place: Place, changes: Record<string, string>): void {
  const query = new URLSearchParams(place.query);
  for (const [name, value] of Object.entries(changes))
    value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  location.replace(`#/${place.path.join("/")}${text ? `?${text}` : ""}`);
}
