/** One iteration as a chart: rows of GPUs down, seconds across, a bar for each call. */
import { useContext } from "preact/hooks";
import type { Plan } from "../api/types";
import { general, percent, seconds, ticksBetween } from "../shared/format";
import { useWidth } from "../shared/parts";
import { LinkedContext, onPress, usePointing } from "./linked";
import { pieces, sum, type Event, type Piece, type Segment } from "./timeline";

const ROW = 30;
const GAP = 6;
const AXIS = 24;
const BUSY = 46;

export function Gantt(props: { plan: Plan; segments: Segment[]; colours: Map<string, string> }) {
  const [element, width] = useWidth();
  const { plan, segments } = props;
  const labels = segments.map(rowLabel);
  const left = 10 + 7.2 * Math.max(...labels.map((label) => label.length));
  const inner = Math.max(40, width - left - BUSY);
  const period = plan.iteration_seconds;
  const x = (time: number) => left + (time / period) * inner;
  const height = segments.length * (ROW + GAP) + AXIS;
  const label = `Chart of one iteration of ${seconds(period)} s: ${segments.length} rows of GPUs`;
  return (
    <div ref={element} class="chart gantt">
      <svg role="group" aria-label={label} width={width} height={height}>
        {ticksBetween(0, period, inner / 80).map((tick) => (
          <g key={tick}>
            <line class="grid" x1={x(tick)} x2={x(tick)} y1={0} y2={height - AXIS} />
            <text
              class="tick"
              x={x(tick)}
              y={height - 7}
              text-anchor={tick === 0 ? "start" : "middle"}
            >
              {x(tick) < left + inner - 64 ? general(tick, 6) : ""}
            </text>
          </g>
        ))}
        <line class="axis" x1={x(period)} x2={x(period)} y1={0} y2={height - AXIS} />
        <text class="tick" x={x(period)} y={height - 7} text-anchor="end">
          {seconds(period)} s
        </text>
        {width > 0 &&
          segments.map((segment, index) => (
            <g key={segment.id} transform={`translate(0 ${index * (ROW + GAP)})`}>
              <text class="row-label" x={0} y={ROW / 2 + 4}>
                {labels[index]}
              </text>
              <line class="idle" x1={left} x2={left + inner} y1={ROW / 2} y2={ROW / 2} />
              {segment.events.flatMap((event) =>
                pieces(event, period).map((piece) => (
                  <Bar
                    key={event.name + piece.start}
                    event={event}
                    piece={piece}
                    x={x}
                    colour={event.sync ? "sync" : (props.colours.get(event.role) ?? "")}
                    where={labels[index] ?? ""}
                  />
                )),
              )}
              <text class="tick" x={width} y={ROW / 2 + 4} text-anchor="end">
                {percent(Math.min(1, sum(segment.events.map((each) => each.seconds)) / period))}
              </text>
            </g>
          ))}
      </svg>
    </div>
  );
}

export function rowLabel(segment: Segment): string {
  const gpus = segment.gpus;
  if (!gpus) return "host";
  return `${gpus.pool}[${gpus.num === 1 ? gpus.first : `${gpus.first}-${gpus.first + gpus.num - 1}`}]`;
}

function Bar(props: {
  event: Event;
  piece: Piece;
  x: (time: number) => number;
  colour: string;
  where: string;
}) {
  const links = useContext(LinkedContext);
  const { event, piece, x } = props;
  const pointing = usePointing(event.name);
  const left = x(piece.start);
  const width = Math.max(2, x(piece.end) - left - 1);
  const full = `${event.key} ${event.name}`;
  const text = 7 * full.length + 10 < width ? full : width > 14 ? event.key : "";
  const state = links.call === null ? "" : links.call === event.name ? "lit" : "dim";
  const says =
    `${full} on ${props.where}: ${seconds(piece.start)} to ${seconds(piece.end)} s` +
    (event.stage ? `, for the iteration begun ${event.stage} before` : "");
  return (
    <g
      class={`bar-of ${props.colour} ${state}`}
      role="button"
      tabindex={piece.continues ? -1 : 0}
      aria-label={says}
      aria-pressed={links.chosen === event.name}
      data-call={event.name}
      {...pointing}
      {...onPress(() => links.choose(event.name))}
    >
      <title>{says}</title>
      <rect x={left} y={0} width={width} height={ROW} rx={2} />
      {text && (
        <text
          x={left + (text === event.key ? width / 2 - 4 : 6)}
          y={ROW / 2 + 4}
          aria-hidden="true"
        >
          {text}
        </text>
      )}
    </g>
  );
}
