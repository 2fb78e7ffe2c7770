/** One iteration as a chart: rows of GPUs down, seconds across, a bar for each call. */
import { AxisBottom } from "@visx/axis";
import { GridColumns } from "@visx/grid";
import { Group } from "@visx/group";
import { scaleBand, scaleLinear } from "@visx/scale";
import { Bar as Rectangle, Line } from "@visx/shape";
import { useContext } from "preact/hooks";
import type { Plan } from "../api/types";
import { general, percent, seconds } from "../shared/format";
import { useSize } from "../shared/parts";
import { LinkedContext, onPress, usePointing } from "./linked";
import { pieces, sum, type Event, type Piece, type Segment } from "./timeline";

/** In pixels where text is of its usual size; a row is a bar and the gap after it. */
const ROW = 36;
const GAP_SHARE = 1 / 6;
const AXIS = 24;
const BUSY = 46;
const CHARACTER = 7.2;

interface Frame {
  x: (time: number) => number;
  row: number;
  scale: number;
}

export function Gantt(props: { plan: Plan; segments: Segment[]; colours: Map<string, string> }) {
  const [element, { width, scale }] = useSize();
  const { plan, segments } = props;
  const labels = segments.map(rowLabel);
  const left = (10 + CHARACTER * Math.max(...labels.map((label) => label.length))) * scale;
  const inner = Math.max(40, width - left - BUSY * scale);
  const period = plan.iteration_seconds;
  const tall = segments.length * ROW * scale;
  const x = scaleLinear<number>({ domain: [0, period], range: [0, inner] });
  const y = scaleBand<string>({
    domain: segments.map((each) => each.id),
    range: [0, tall],
    paddingInner: GAP_SHARE,
    paddingOuter: GAP_SHARE / 2,
  });
  const row = y.bandwidth();
  const ticks = x.ticks(inner / (80 * scale));
  const label = `Chart of one iteration of ${seconds(period)} s: ${segments.length} rows of GPUs`;
  return (
    <div ref={element} class="chart gantt">
      <svg role="group" aria-label={label} width={width} height={tall + AXIS * scale}>
        {width > 0 && (
          <>
            <Group left={left}>
              <GridColumns className="grid" scale={x} height={tall} tickValues={ticks} />
              <Line className="axis" from={{ x: inner, y: 0 }} to={{ x: inner, y: tall }} />
              <AxisBottom
                scale={x}
                top={tall}
                hideTicks
                axisLineClassName="axis"
                tickLength={6 * scale}
                // The end has its own text, which those beside it make room for.
                tickValues={[...ticks.filter((tick) => x(tick) < inner - 64 * scale), period]}
                tickFormat={(value) =>
                  value === period ? `${seconds(period)} s` : general(Number(value), 6)
                }
                tickLabelProps={(value) => ({
                  className: "tick",
                  textAnchor: value === 0 ? "start" : value === period ? "end" : "middle",
                  dy: "0.6em",
                })}
              />
            </Group>
            {segments.map((segment, index) => (
              <Group key={segment.id} top={y(segment.id) ?? 0}>
                <text class="row-label" y={row / 2} dy="0.33em">
                  {labels[index]}
                </text>
                <Group left={left}>
                  <Line
                    className="idle"
                    from={{ x: 0, y: row / 2 }}
                    to={{ x: inner, y: row / 2 }}
                  />
                  {segment.events.flatMap((event) =>
                    pieces(event, period).map((piece) => (
                      <Bar
                        key={event.name + piece.start}
                        event={event}
                        piece={piece}
                        frame={{ x, row, scale }}
                        colour={event.sync ? "sync" : (props.colours.get(event.role) ?? "")}
                        where={labels[index] ?? ""}
                      />
                    )),
                  )}
                </Group>
                <text class="tick" x={width} y={row / 2} dy="0.33em" text-anchor="end">
                  {percent(Math.min(1, sum(segment.events.map((each) => each.seconds)) / period))}
                </text>
              </Group>
            ))}
          </>
        )}
      </svg>
    </div>
  );
}

export function rowLabel(segment: Segment): string {
  const gpus = segment.gpus;
  if (!gpus) return "host";
  return `${gpus.pool}[${gpus.num === 1 ? gpus.first : `${gpus.first}-${gpus.first + gpus.num - 1}`}]`;
}

function Bar(props: { event: Event; piece: Piece; frame: Frame; colour: string; where: string }) {
  const links = useContext(LinkedContext);
  const { event, piece, frame } = props;
  const pointing = usePointing(event.name);
  const left = frame.x(piece.start);
  const width = Math.max(2, frame.x(piece.end) - left - 1);
  const full = `${event.key} ${event.name}`;
  const room = width / frame.scale;
  const text = 7 * full.length + 10 < room ? full : room > 14 ? event.key : "";
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
      <Rectangle x={left} width={width} height={frame.row} rx={2} />
      {text && (
        <text
          x={left + (text === event.key ? width / 2 : 6 * frame.scale)}
          y={frame.row / 2}
          dy="0.33em"
          text-anchor={text === event.key ? "middle" : "start"}
          aria-hidden="true"
        >
          {text}
        </text>
      )}
    </g>
  );
}
