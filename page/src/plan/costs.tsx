/** What the plan will cost before it is run, by type of GPU. */
import { api } from "../api/client";
import { useResource } from "../api/resource";
import type { GpuCost } from "../api/types";
import * as format from "../shared/format";
import { Loaded, Table } from "../shared/parts";

const COLUMNS = [
  "GPU type",
  "#GPUs",
  "#An iteration",
  "#A million tokens",
  "#The run",
  "#GPU-hours",
];

export function PlanCosts({ id }: { id: string }) {
  const costs = useResource(id, () =>
    api.GET("/v1/plans/{plan_id}/costs", { params: { path: { plan_id: id } } }),
  );
  return (
    <section aria-labelledby="costs">
      <h2 id="costs">Price</h2>
      <Loaded from={costs}>
        {({ total, by_gpu, iterations, run_seconds }) => (
          <>
            <Table label="Price" columns={COLUMNS}>
              {(by_gpu ?? []).map((each) => (
                <Row key={each.gpu} cost={each} name={each.gpu} />
              ))}
              {by_gpu?.length !== 1 && <Row cost={total} name="in all" />}
            </Table>
            <p class="quiet">
              {`The run: ${format.numberOf(iterations, "iteration")}, ` +
                `${format.duration(run_seconds)} with start-up and checkpoints.`}
              {by_gpu === null &&
                " Not divided by type: nodes or prices of the catalogue have changed since."}
            </p>
          </>
        )}
      </Loaded>
    </section>
  );
}

function Row({ cost, name }: { cost: GpuCost; name: string }) {
  const prices = [cost.price_per_iteration, cost.price_per_million_tokens, cost.run_price];
  return (
    <tr>
      <th scope="row">{name}</th>
      <td class="number">{format.count(cost.gpus)}</td>
      {prices.map((each, index) => (
        <td key={index} class="number">
          {each ? format.price(each) : "no price"}
        </td>
      ))}
      <td class="number">{format.rate(cost.run_gpu_hours)}</td>
    </tr>
  );
}
