/** The API's types by their names, and what the page makes of those that leave something open. */
import type { components } from "../../generated/api";

type Schemas = components["schemas"];
export type PlanSummary = Schemas["PlanSummary"];
export type PlanRecord = Schemas["PlanRecord"];
export type Plan = Schemas["Plan"];
export type CopyPlan = Schemas["CopyPlan"];
export type CallPlan = Schemas["CallPlan"];
export type WeightSync = Schemas["WeightSync"];
export type Parallelism = Schemas["Parallelism"];
export type BytesByKind = Schemas["BytesByKind"];
export type Interval = Schemas["Interval"];
export type Strategy = Schemas["Strategy"];
export type JobSpec = Schemas["JobSpec"];
export type JobSummary = Schemas["JobSummary"] | Schemas["ProfileJobSummary"];
export type RunRecord = Schemas["JobRecord"];
export type ProfileJobRecord = Schemas["ProfileJobRecord"];
export type JobRecord = RunRecord | ProfileJobRecord;
export type JobSuggestion = Schemas["JobSuggestion"];
export type Description = Pick<PlanSummary, "name" | "owner" | "labels" | "notes">;
/** What is left out stays as it is; the schema calls what has a default required. */
export type DescriptionPatch = Partial<Schemas["DescriptionPatch"]>;
export type JobPatch = Partial<Schemas["JobPatch"]>;
export type PlanDifference = Schemas["PlanDifference"];
export type Quantity = Schemas["Quantity"];
export type Budget = Schemas["BudgetRecord"];
export type Cost = Schemas["Cost"];
export type GpuCost = Schemas["GpuCost"];
export type Problem = Schemas["Problem"];
export type FieldError = Schemas["FieldError"];
export type Explanation = Schemas["Explanation"];
export type Alternative = Schemas["Alternative"];
export type Sensitivity = Schemas["Sensitivity"];
export type Threshold = Schemas["Threshold"];
export type Variant = Schemas["VariantRecord"];
export type Front = Schemas["FrontRecord"];
export type Launch = Schemas["Launch"];
export type CatalogueModel = Schemas["CatalogueModel"];
export type GpuDescription = Schemas["GpuDescription"];

/** The plan of a record; null where there is none, or one of a version that is read no more. */
export function planOf(record: PlanRecord): Plan | null {
  const plan = record.plan;
  return plan && "calls" in plan && "iteration_seconds" in plan && "search" in plan
    ? (plan as Plan)
    : null;
}

/** Whether a plan or job is still going to change. */
export function isOpen(status: string): boolean {
  return status === "queued" || status === "starting" || status === "running";
}
