/** One colour per role, the same in map, chart and table; style/drawings.css has the hues. */
import type { Plan } from "../api/types";

const USUAL = ["actor", "critic", "reference", "reward", "cost"];
const COLOURS = 8;

/** Role → class of its colour. Usual roles keep theirs in every plan. */
export function roleColours(plan: Plan): Map<string, string> {
  const roles = [...new Set([...plan.copies, ...plan.calls].map((each) => each.role))];
  const others = roles.filter((role) => !USUAL.includes(role));
  return new Map(
    roles.map((role) => {
      const usual = USUAL.indexOf(role);
      const index = usual >= 0 ? usual : USUAL.length + others.indexOf(role);
      return [role, `role-${index % COLOURS}`];
    }),
  );
}
