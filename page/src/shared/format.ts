/** Numbers as a person reads them: the same texts as those of the command line. */
import type { Interval, Parallelism } from "../api/types";

const GIB = 2 ** 30;

function grouped(value: number, digits = 0): string {
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** Significant digits without zeros at the end. */
export function general(value: number, digits = 2): string {
  return tiny(value, digits) ?? String(Number(value.toPrecision(digits)));
}

/** 1.7e-06, as zeros would be counted otherwise; null: the number is not that small. */
function tiny(value: number, digits: number): string | null {
  if (value === 0 || Math.abs(value) >= 1e-4) return null;
  return value.toExponential(digits - 1).replace(/e-(\d)$/, "e-0$1");
}

export function seconds(value: number): string {
  if (value >= 1000) return grouped(value);
  if (value >= 100) return value.toFixed(1);
  if (value >= 1) return value.toFixed(2);
  return value ? (tiny(value, 3) ?? value.toPrecision(3)) : "0";
}

export function interval(bounds: Interval): string {
  return `${seconds(bounds.low)}–${seconds(bounds.high)}`;
}

export function duration(value: number): string {
  if (value < 60) return `${seconds(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(value / 3600);
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

export function gib(bytes: number): string {
  const value = bytes / GIB;
  return value >= 0.1 || value === 0 ? value.toFixed(1) : general(value);
}

/** The text of a number, or a dash where it is not known. */
export function known<T>(value: T | null | undefined, text: (value: T) => string): string {
  return value === null || value === undefined ? "–" : text(value);
}

export function count(value: number): string {
  return grouped(value);
}

export function rate(value: number): string {
  return value >= 10 ? count(value) : seconds(value);
}

export function price(value: number): string {
  if (value >= 10_000) return grouped(value);
  return value >= 0.01 || value === 0 ? grouped(value, 2) : general(value, 3);
}

export function percent(share: number): string {
  const value = 100 * share;
  return value > 0 && value < 1 ? "<1%" : `${value.toFixed(0)}%`;
}

/** A share with its sign, a digit after the point where it is small; times from ten on. */
export function change(share: number): string {
  if (share >= 9) return `×${grouped(1 + share)}`;
  const value = 100 * share;
  if (Math.abs(value) < 0.05) return "±0%";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) < 10 ? 1 : 0)}%`;
}

export function gap(relative: number): string {
  if (relative > 0 && relative < 1e-4) return "<0.01%";
  return relative === 0 ? "0%" : `${general(100 * relative)}%`;
}

export function chance(probability: number): string {
  return probability >= 0.001 ? `${general(100 * probability)} %` : "below 0.1 %";
}

export function gpus(first: number, num: number): string {
  return num === 1 ? `${first}` : `${first}-${first + num - 1}`;
}

export function numberOf(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Sizes above one, tensor and data always: tp8 pp2 dp8. */
export function layout(sizes: Parallelism): string {
  const virtual = sizes.virtual_pipeline_parallel_size;
  const parts: [string, number, string][] = [
    ["tp", sizes.tensor_parallel_size, ""],
    ["pp", sizes.pipeline_parallel_size, virtual > 1 ? `x${virtual}` : ""],
    ["cp", sizes.context_parallel_size, ""],
    ["dp", sizes.data_parallel_size, ""],
    ["ep", sizes.expert_parallel_size, ""],
  ];
  return parts
    .filter(([name, size]) => size > 1 || name === "tp" || name === "dp")
    .map(([name, size, more]) => `${name}${size}${more}`)
    .join(" ");
}

export function moment(iso: string): string {
  const when = new Date(iso);
  const day = when.toLocaleDateString("en-CA");
  return `${day} ${when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })}`;
}
