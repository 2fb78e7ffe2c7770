/** The plan as the launch of another framework, to copy. */
import { api } from "../api/client";
import { useResource } from "../api/resource";
import { Copy, Loaded, Table } from "../shared/parts";

const TARGET = "verl@0.9.1";

export function Export({ id }: { id: string }) {
  const launch = useResource(`export ${id}`, () =>
    api.GET("/v1/plans/{plan_id}/export", {
      params: { path: { plan_id: id }, query: { target: TARGET } },
    }),
  );
  return (
    <section aria-labelledby="export">
      <h2 id="export">Launch with {TARGET}</h2>
      <Loaded from={launch}>
        {(found) => (
          <div class="wall even">
            <div>
              <p>
                {found.num_nodes} nodes with {found.gpus_per_node} GPUs each.{" "}
                <Copy text={found.script} what="the launch" />
              </p>
              {found.placeholders.length > 0 && (
                <>
                  <p>Fill in before it is run:</p>
                  <ul class="notes">
                    {found.placeholders.map((each) => (
                      <li key={each.variable}>
                        <code>{each.variable}</code>: {each.what}
                      </li>
                    ))}
                  </ul>
                </>
              )}
              <pre tabIndex={0} aria-label="Launch">
                {found.script}
              </pre>
            </div>
            <div>
              <h3>Why each setting</h3>
              <Table label="Settings" columns={["Setting", "Value", "Because"]}>
                {found.settings.map((each) => (
                  <tr key={each.key}>
                    <th scope="row">
                      <code>{each.key}</code>
                    </th>
                    <td>
                      <code>{each.value}</code>
                    </td>
                    <td>{each.because}</td>
                  </tr>
                ))}
              </Table>
              <ul class="notes">
                {found.assumptions.map((line) => (
                  <li key={line}>{line}</li>
                ))}
              </ul>
            </div>
          </div>
        )}
      </Loaded>
    </section>
  );
}
