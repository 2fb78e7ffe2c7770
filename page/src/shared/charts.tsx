/** Two charts with axes: lines over iterations, and points of seconds against price. */
import type { ComponentChildren } from "preact";
import { general, ticksBetween } from "./format";
import { useWidth } from "./parts";

const LEFT = 52;
const BOTTOM = 22;
const TOP = 8;
const RIGHT = 12;

interface Frame {
  x: (value: number) => number;
  y: (value: number) => number;
}

function Axes(props: {
  label: string;
  height: number;
  xs: [number, number];
  ys: [number, number];
  children: (frame: Frame) => ComponentChildren;
}) {
  const [element, width] = useWidth();
  const [[x0, x1], [y0, y1]] = [props.xs, props.ys];
  const inner = Math.max(1, width - LEFT - RIGHT);
  const tall = props.height - TOP - BOTTOM;
  const x = (value: number) => LEFT + ((value - x0) / (x1 - x0 || 1)) * inner;
  const y = (value: number) => TOP + (1 - (value - y0) / (y1 - y0 || 1)) * tall;
  return (
    <div ref={element} class="chart">
      <svg role="img" aria-label={props.label} width={width} height={props.height}>
        {ticksBetween(y0, y1, 4).map((tick) => (
          <g key={tick}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
            <text class="tick" x={LEFT - 6} y={y(tick) + 4} text-anchor="end">
              {general(tick, 4)}
            </text>
          </g>
        ))}
        {ticksBetween(x0, x1, Math.max(2, inner / 90)).map((tick) => (
          <text
            key={tick}
            class="tick"
            x={x(tick)}
            y={props.height - 4}
            text-anchor={x(tick) > width - 40 ? "end" : "middle"}
          >
            {general(tick, 6)}
          </text>
        ))}
        {width > 0 && props.children({ x, y })}
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
    <Axes label={props.label} height={150} xs={[first, last]} ys={[from, high + pad]}>
      {({ x, y }) => (
        <>
          {predicted !== null && (
            <line
              class="predicted"
              x1={x(first)}
              x2={x(last)}
              y1={y(predicted)}
              y2={y(predicted)}
            />
          )}
          <polyline
            class="line"
            points={props.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ")}
          />
          {props.points.length < 40 &&
            props.points.map(([a, b]) => (
              <circle key={a} class="dot" cx={x(a)} cy={y(b)} r={2.5} />
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
      height={220}
      xs={[0, 1.1 * Math.max(...xs)]}
      ys={[0, 1.15 * Math.max(...ys)]}
    >
      {({ x, y }) => (
        <>
          <polyline
            class="line"
            points={props.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ")}
          />
          {props.points.map(([a, b], index) => (
            <g key={index}>
              <circle class="dot" cx={x(a)} cy={y(b)} r={4} />
              <text class="tick" x={x(a) + 7} y={y(b) - 6}>
                {index + 1}
              </text>
            </g>
          ))}
        </>
      )}
    </Axes>
  );
}
