/** Charts with axes: lines over iterations, points of seconds against price, bars in tables. */
import { AxisBottom, AxisLeft } from "@visx/axis";
import { GridRows } from "@visx/grid";
import { Group } from "@visx/group";
import { scaleLinear } from "@visx/scale";
import { Bar, Circle, Line as Straight, LinePath } from "@visx/shape";
import type { ComponentChildren } from "preact";
import { general } from "./format";
import { useSize } from "./parts";

const MARGIN = { left: 52, right: 12, top: 8, bottom: 24 };

/** A wide chart is tall, too, up to a bound; in pixels where text is of its usual size. */
const SHAPE = 0.3;
const TALLEST = 320;

type Scale = ReturnType<typeof scaleLinear<number>>;

interface Frame {
  x: Scale;
  y: Scale;
  scale: number;
}

function Axes(props: {
  label: string;
  height: number;
  xs: [number, number];
  ys: [number, number];
  /** Across are numbers of iterations. */
  whole?: boolean;
  children: (frame: Frame) => ComponentChildren;
}) {
  const [element, { width, scale }] = useSize();
  const height = Math.max(props.height * scale, Math.min(SHAPE * width, TALLEST * scale));
  const left = MARGIN.left * scale;
  const across = Math.max(1, width - left - MARGIN.right * scale);
  const tall = height - (MARGIN.top + MARGIN.bottom) * scale;
  const x = scaleLinear<number>({ domain: props.xs, range: [0, across] });
  const y = scaleLinear<number>({ domain: props.ys, range: [tall, 0] });
  const ticks = x.ticks(Math.max(2, across / (90 * scale)));
  return (
    <div ref={element} class="chart">
      <svg role="img" aria-label={props.label} width={width} height={height}>
        {width > 0 && (
          <Group left={left} top={MARGIN.top * scale}>
            <GridRows className="grid" scale={y} width={across} numTicks={4} />
            <AxisLeft
              scale={y}
              numTicks={4}
              hideAxisLine
              hideTicks
              tickLength={6}
              tickFormat={(value) => general(Number(value), 4)}
              tickLabelProps={{ className: "tick", textAnchor: "end", dy: "0.33em" }}
            />
            <AxisBottom
              scale={x}
              top={tall}
              hideTicks
              axisLineClassName="axis"
              tickLength={6 * scale}
              tickValues={props.whole ? ticks.filter(Number.isInteger) : ticks}
              tickFormat={(value) => general(Number(value), 6)}
              tickLabelProps={(value) => ({
                className: "tick",
                textAnchor: x(Number(value)) > across - 30 * scale ? "end" : "middle",
                dy: "0.6em",
              })}
            />
            {props.children({ x, y, scale })}
          </Group>
        )}
      </svg>
    </div>
  );
}

export type Point = [x: number, y: number];

/** A line of values, and dashed what was predicted of them. */
export function Line(props: { label: string; points: Point[]; predicted?: number | null }) {
  const predicted = props.predicted ?? null;
  const values = props.points.map(([, y]) => y);
  const all = predicted === null ? values : [...values, predicted];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const pad = 0.08 * (high - low) || Math.abs(high) * 0.1 || 1;
  // A chart of positive values near zero begins there.
  const from = low >= 0 && low < 0.7 * high ? 0 : low - pad;
  const last = props.points.at(-1)?.[0] ?? 1;
  const first = props.points[0]?.[0] ?? 0;
  return (
    <Axes label={props.label} height={170} xs={[first, last]} ys={[from, high + pad]} whole>
      {({ x, y, scale }) => (
        <>
          {predicted !== null && (
            <Straight
              className="predicted"
              from={{ x: x(first), y: y(predicted) }}
              to={{ x: x(last), y: y(predicted) }}
            />
          )}
          <LinePath className="line" data={props.points} x={([a]) => x(a)} y={([, b]) => y(b)} />
          {props.points.length < 40 &&
            props.points.map(([a, b]) => (
              <Circle key={a} className="dot" cx={x(a)} cy={y(b)} r={2.5 * scale} />
            ))}
        </>
      )}
    </Axes>
  );
}

export function Points(props: { label: string; points: Point[] }) {
  const xs = props.points.map(([x]) => x);
  const ys = props.points.map(([, y]) => y);
  return (
    <Axes
      label={props.label}
      height={240}
      xs={[0, 1.1 * Math.max(...xs)]}
      ys={[0, 1.15 * Math.max(...ys)]}
    >
      {({ x, y, scale }) => (
        <>
          <LinePath className="line" data={props.points} x={([a]) => x(a)} y={([, b]) => y(b)} />
          {props.points.map(([a, b], index) => (
            <Group key={index} left={x(a)} top={y(b)}>
              <Circle className="dot" r={4 * scale} />
              <text class="tick" x={7 * scale} y={-6 * scale}>
                {index + 1}
              </text>
            </Group>
          ))}
        </>
      )}
    </Axes>
  );
}

/** A bar as long as a share of the largest, for the cell of a table. */
export function ShareBar(props: { label: string; share: number }) {
  const [element, { width, scale }] = useSize();
  const x = scaleLinear<number>({ domain: [0, 1], range: [0, width] });
  return (
    <div ref={element} class="share">
      <svg role="img" aria-label={props.label} width={width} height={14 * scale}>
        <Bar className="dot" width={Math.max(1, x(props.share))} height={14 * scale} rx={2} />
      </svg>
    </div>
  );
}
