/** Errors of an estimate on a scale of ratios: what is usual, and what changes the plan. */
import { scaleLog } from "@visx/scale";
import { Bar, Circle, Line } from "@visx/shape";
import type { Sensitivity } from "../api/types";
import { useSize } from "../shared/parts";

/** An estimate may be wrong by a factor; those beyond lie at the ends. */
const MOST = 4;
const MARGIN = 8;
const TALL = 18;

function ratios(width: number) {
  const range = [MARGIN, Math.max(MARGIN, width - MARGIN)];
  return scaleLog<number>({ domain: [1 / MOST, MOST], range, clamp: true });
}

export function ErrorBar({ of, label }: { of: Sensitivity; label: string }) {
  const [element, { width, scale }] = useSize();
  const x = ratios(width);
  const tall = TALL * scale;
  const middle = tall / 2;
  const [low, high] = [x(1 / (1 + of.spread)), x(1 + of.spread)];
  return (
    <div ref={element} class="share">
      <svg role="img" aria-label={label} width={width} height={tall}>
        <Bar className="band" x={low} y={3} width={Math.max(0, high - low)} height={tall - 6} />
        <Line
          className="axis"
          from={{ x: x(1 / MOST), y: middle }}
          to={{ x: x(MOST), y: middle }}
        />
        <Line className="axis" from={{ x: x(1), y: 2 }} to={{ x: x(1), y: tall - 2 }} />
        {[of.less.error, of.more.error].map((error, index) =>
          error === null ? null : (
            <Circle key={index} className="dot" cx={x(1 + error)} cy={middle} r={4 * scale} />
          ),
        )}
      </svg>
    </div>
  );
}
