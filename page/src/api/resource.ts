import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Failure, mayPass, problem } from "./client";
import type { Problem } from "./types";

/** After so long it is asked again for what the service could not answer. */
const AGAIN_SECONDS = 3;

export interface Resource<T> {
  data: T | null;
  problem: Problem | null;
  reload: () => void;
}

/**
 * What `load` answers: again when `name` changes, every so often while `poll` says so, and after a
 * failure that may pass, such as that of a service that is being restarted.
 */
export function useResource<T>(
  name: string,
  load: () => Promise<T>,
  poll: (data: T) => number | null = () => null,
): Resource<T> {
  const [state, setState] = useState<{ name: string; data: T | null; problem: Problem | null }>({
    name,
    data: null,
    problem: null,
  });
  const [round, setRound] = useState(0);
  const latest = useRef({ load, poll });
  latest.current = { load, poll };
  useEffect(() => {
    let over = false;
    let timer: number | undefined;
    const ask = async () => {
      try {
        const data = await latest.current.load();
        if (over) return;
        setState({ name, data, problem: null });
        const seconds = latest.current.poll(data);
        if (seconds !== null) timer = window.setTimeout(() => void ask(), 1000 * seconds);
      } catch (error) {
        if (over) return;
        setState((before) => ({
          name,
          data: before.name === name ? before.data : null,
          problem: problemOf(error),
        }));
        if (mayPass(error)) timer = window.setTimeout(() => void ask(), 1000 * AGAIN_SECONDS);
      }
    };
    void ask();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [name, round]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  const current = state.name === name;
  return {
    data: current ? state.data : null,
    problem: current ? state.problem : null,
    reload,
  };
}

export interface Action<T> {
  run: () => Promise<void>;
  busy: boolean;
  /** Seconds since the action began. */
  seconds: number;
  data: T | null;
  problem: Problem | null;
}

/** What a button starts: at most once at a time, with its answer or problem. */
export function useAction<T>(start: () => Promise<T>, kept: T | null = null): Action<T> {
  const [state, setState] = useState<{ busy: boolean; data: T | null; problem: Problem | null }>({
    busy: false,
    data: kept,
    problem: null,
  });
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    if (!state.busy) return;
    const begun = Date.now();
    setSeconds(0);
    const timer = window.setInterval(
      () => setSeconds(Math.round((Date.now() - begun) / 1000)),
      1000,
    );
    return () => window.clearInterval(timer);
  }, [state.busy]);
  const run = async () => {
    if (state.busy) return;
    setState((before) => ({ ...before, busy: true, problem: null }));
    try {
      const data = await start();
      setState({ busy: false, data, problem: null });
    } catch (error) {
      setState((before) => ({ ...before, busy: false, problem: problemOf(error) }));
    }
  };
  return { run, seconds, ...state };
}

export function problemOf(error: unknown): Problem {
  return error instanceof Failure ? error.problem : problem("The page failed", String(error));
}
