/** The plan in its first figures, as the command line says them, and what to heed before it is used. */
import type { Plan } from "../api/types";
import * as format from "../shared/format";
import { Figure } from "../shared/parts";

export function Headline({ plan }: { plan: Plan }) {
  const bounds = plan.iteration_seconds_interval ?? null;
  const risk = plan.out_of_memory_probability ?? null;
  const [proof, more] = proofOf(plan);
  return (
    <>
      {(plan.warnings ?? []).length > 0 && (
        <ul class="warnings" aria-label="Warnings">
          {(plan.warnings ?? []).map((line) => (
            <li key={line}>
              <strong>Warning:</strong> {line}
            </li>
          ))}
        </ul>
      )}
      <dl class="figures">
        <Figure name="Per iteration" value={`${format.seconds(plan.iteration_seconds)} s`}>
          {bounds && `${format.interval(bounds)} in 80 % of runs`}
        </Figure>
        <Figure name="Out of memory" value={risk === null ? "unknown" : format.chance(risk)}>
          chance of it
        </Figure>
        <Figure name="Proof" value={proof}>
          {more}
        </Figure>
        <Figure name="Runs with" value={(plan.runs_with ?? []).join(", ") || "nothing known"}>
          {plan.search.target ? `searched for ${plan.search.target}` : ""}
        </Figure>
        <Figure name="Throughput" value={`${format.count(plan.tokens_per_second)} tokens/s`}>
          {format.numberOf(plan.gpus_used, "GPU")}
        </Figure>
        <Figure name="Price" value={`${format.price(plan.price_per_million_tokens)}`}>
          per million tokens
        </Figure>
      </dl>
      {(plan.assumed_networks ?? []).length > 0 && (
        <p class="quiet">
          {(plan.assumed_networks ?? [])
            .map(
              (each) =>
                `Network of ${each.pool}: not given, ` +
                `${format.general(each.inter_node_bytes_per_second / 1e9, 6)} GB/s per GPU ` +
                `assumed; at a quarter of it ` +
                `${format.seconds(each.iteration_seconds_at_a_quarter)} s per iteration.`,
            )
            .join(" ")}
        </p>
      )}
    </>
  );
}

/** How good the plan provably is: in short, and what more there is to say. */
export function proofOf(plan: Plan): [string, string] {
  const { search } = plan;
  const gap = format.gap(plan.relative_gap);
  if (search.status === "optimal") return ["proven optimal", "no plan of the space is better"];
  if (search.status === "given")
    return [search.strategy ? `as ${search.strategy} places it` : "as given", "not searched"];
  if (search.robust)
    return [
      `regret at most ${format.general(100 * search.robust.worst_regret)}%`,
      "in the worst case",
    ];
  if (search.within_tolerance != null) {
    const better =
      search.objective === "throughput" ? "fastest is {} faster" : "best is {} cheaper";
    return [
      `within ${format.general(100 * search.within_tolerance, 6)}% of the proven optimum`,
      `and simpler, or with more memory free; the ${better.replace("{}", gap)}`,
    ];
  }
  if (search.within_gap) return [`proven to within ${gap} of the best`, ""];
  const limit = format.general(plan.spec.search.time_limit_seconds, 6);
  return ["not proven", `stopped at the time limit of ${limit} s, gap ${gap}`];
}
