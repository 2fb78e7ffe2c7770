/** The frame around every view: where to go, the key, and what the place in the address means. */
import type { ComponentType } from "preact";
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { key, whenUnauthorized } from "./api/client";
import { problemOf } from "./api/resource";
import { JobList } from "./lists/jobs";
import { PlanList } from "./lists/plans";
import { usePlace, type Place } from "./router";
import { Trouble } from "./shared/parts";

type View = ComponentType<{ place: Place }>;

/** A view's code is fetched when it is first gone to. */
const LATER: Record<string, () => Promise<View>> = {
  plan: async () => (await import("./plan/page")).PlanPage,
  job: async () => (await import("./job/page")).JobPage,
  new: async () => (await import("./form/page")).FormPage,
  diff: async () => (await import("./diff/page")).DiffPage,
  costs: async () => (await import("./costs/page")).CostsPage,
};

function nameOf(place: Place): string {
  const [first = "plans", second] = place.path;
  if (first === "plans") return second ? "plan" : "plans";
  if (first === "jobs") return second ? "job" : "jobs";
  return first;
}

function Late({ name, place }: { name: string; place: Place }) {
  const [view, setView] = useState<{ name: string; View: View } | null>(null);
  useEffect(() => {
    let over = false;
    void LATER[name]?.().then((View) => !over && setView({ name, View }));
    return () => {
      over = true;
    };
  }, [name]);
  if (!(name in LATER)) return <h1>There is no such page</h1>;
  return view?.name === name ? <view.View place={place} /> : <p role="status">Loading …</p>;
}

class Boundary extends Component<{ children: preact.ComponentChildren }, { error?: unknown }> {
  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    return this.state.error ? (
      <Trouble problem={problemOf(this.state.error)} />
    ) : (
      this.props.children
    );
  }
}

export function App() {
  const place = usePlace();
  const [locked, setLocked] = useState(false);
  const [session, setSession] = useState(0);
  const main = useRef<HTMLElement | null>(null);
  useEffect(() => whenUnauthorized(() => setLocked(true)), []);
  const name = nameOf(place);
  const path = place.path.join("/");
  const first = useRef(true);
  useEffect(() => {
    // A screen reader goes on where the new view begins.
    if (first.current) first.current = false;
    else main.current?.focus();
  }, [path]);
  const unlock = (given: string) => {
    key.set(given);
    setLocked(false);
    setSession(session + 1);
  };
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => (event.preventDefault(), main.current?.focus())}
      >
        Skip to the content
      </a>
      <header class="bar">
        <a class="mark" href="#/plans">
          <img src="/icon.svg" alt="" width="20" height="20" /> Automap
        </a>
        <nav aria-label="Views">
          <To name="plans" here={name === "plans" || name === "plan" || name === "diff"}>
            Plans
          </To>
          <To name="jobs" here={name === "jobs" || name === "job"}>
            Jobs
          </To>
          <To name="costs" here={name === "costs"}>
            Costs
          </To>
          <To name="new" here={name === "new"}>
            New plan
          </To>
          <a href="/docs">API</a>
        </nav>
        {key.get() !== null && !locked && (
          <button
            type="button"
            class="plain"
            onClick={() => {
              key.forget();
              setLocked(true);
            }}
          >
            Forget the key
          </button>
        )}
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {locked ? (
          <Lock onKey={unlock} wrong={key.get() !== null} />
        ) : (
          <Boundary key={`${path} ${session}`}>
            {name === "plans" && <PlanList place={place} />}
            {name === "jobs" && <JobList place={place} />}
            {name !== "plans" && name !== "jobs" && <Late name={name} place={place} />}
          </Boundary>
        )}
      </main>
    </>
  );
}

function To(props: { name: string; here: boolean; children: string }) {
  return (
    <a href={`#/${props.name}`} aria-current={props.here ? "page" : undefined}>
      {props.children}
    </a>
  );
}

function Lock({ onKey, wrong }: { onKey: (key: string) => void; wrong: boolean }) {
  const [given, setGiven] = useState("");
  return (
    <form
      class="lock"
      onSubmit={(event) => {
        event.preventDefault();
        if (given.trim()) onKey(given.trim());
      }}
    >
      <h1>This service asks for a key</h1>
      {wrong && <p role="alert">The service does not know the key that was given.</p>}
      <label>
        API key
        <input
          type="password"
          autocomplete="off"
          value={given}
          onInput={(event) => setGiven(event.currentTarget.value)}
        />
      </label>
      <button type="submit">Open</button>
      <p class="quiet">It stays in this tab until that is closed.</p>
    </form>
  );
}
