/** What a run told so far, read from its stream of events while the view is open. */
import { useEffect, useState } from "preact/hooks";
import { eventsOf, Failure, mayPass } from "../api/client";
import type { Point } from "../shared/charts";

export const REWARD = "critic/score/mean";
/** Points of a line at most: of a longer run every second, fourth, … iteration is drawn. */
const MOST = 2000;
const REDRAW_MS = 250;
const AGAIN_MS = 3000;

export interface RunEvents {
  reward: Point[];
  iterations: Point[];
}

export function useEvents(jobId: string): RunEvents {
  const [told, setTold] = useState<RunEvents>({ reward: [], iterations: [] });
  useEffect(() => {
    const stop = new AbortController();
    // An iteration that is done again after a restart takes the place of the first.
    const reward = new Map<number, number>();
    const iterations = new Map<number, number>();
    let waiting = 0;
    let last = 0;
    const draw = () => {
      waiting = 0;
      setTold({ reward: thinned(reward), iterations: thinned(iterations) });
    };
    /** Those of one connection; whether there will be no more. */
    const listen = async (): Promise<boolean> => {
      const events = eventsOf(jobId, last, stop.signal);
      for (;;) {
        const { done, value } = await events.next();
        if (done) return value;
        const [number, event] = value;
        last = number;
        keep(event, reward, iterations);
        waiting ||= window.setTimeout(draw, REDRAW_MS);
      }
    };
    const follow = async () => {
      while (!stop.signal.aborted) {
        try {
          if (await listen()) return;
        } catch (error) {
          // A connection that breaks while it is read is no failure of the service's own.
          if (error instanceof Failure && !mayPass(error)) return;
        }
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    };
    void follow();
    return () => {
      stop.abort();
      window.clearTimeout(waiting);
    };
  }, [jobId]);
  return told;
}

function keep(
  event: Record<string, unknown>,
  reward: Map<number, number>,
  iterations: Map<number, number>,
): void {
  const iteration = event["iteration"];
  if (typeof iteration !== "number") return;
  if (event["type"] === "iteration" && typeof event["seconds"] === "number")
    iterations.set(iteration, event["seconds"]);
  if (event["type"] === "metrics") {
    const value = (event["metrics"] as Record<string, unknown> | undefined)?.[REWARD];
    if (typeof value === "number") reward.set(iteration, value);
  }
}

function thinned(values: Map<number, number>): Point[] {
  const points = [...values].sort(([a], [b]) => a - b);
  const every = Math.ceil(points.length / MOST);
  return points.filter((_, index) => index % every === 0 || index === points.length - 1);
}
