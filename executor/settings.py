"""How a job is run: everything that a plan leaves open. One pydantic model for files and HTTP."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from automap.planner.documented import Documented

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class SettingsModel(Documented, BaseModel):
    """Frozen; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OptimizerSettings(SettingsModel):
    """AdamW with gradient clipping and a learning-rate schedule, per role."""

    learning_rate: PositiveFloat = 1e-6
    minimum_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    decay_steps: PositiveInt | None = None
    """Optimizer steps after which the minimum is reached; needed unless constant."""
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: PositiveFloat = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    clip_grad_norm: PositiveFloat = 1.0


class TrainingSettings(SettingsModel):
    """How a role's model trains and scores."""

    engine: Literal["megatron", "fsdp"] | None = None
    """Without one, what the plan chose for the role."""
    optimizer: OptimizerSettings = OptimizerSettings()
    micro_batch_tokens: PositiveInt | None = None
    """Tokens of a micro-batch, packed, over all ranks that share its rows; None: what memory is
    sized for by the plan, for its micro_batch_size in sequences."""
    sequence_parallel: bool = True
    master_weights: Literal["fp32"] = "fp32"
    reduce_dtype: Literal["fp32"] = "fp32"


class AlgorithmSettings(SettingsModel):
    """The numbers of the losses and advantages; names as in the papers and in verl."""

    gamma: Fraction = 1.0
    lam: Fraction = 0.95
    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat | None = None
    """Without one the algorithm's: 0.28 of dapo, 0.2 of others."""
    dual_clip: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    """Bound of the ratio where the advantage is negative (Ye et al. 2019); None: no bound."""
    off_policy_correction: Literal["decoupled_ppo", "truncated_importance_sampling"] | None = None
    """Weighs the clipped loss of each token by π_p/μ, the policy that training starts from over the
    one that generated: decoupled_ppo leaves out tokens above the cap (AReaL),
    truncated_importance_sampling cuts their weight there (Yao et al. 2025); None: no weights."""
    importance_weight_cap: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    """The largest weight of a correction; None: 5 of decoupled_ppo, 2 of the other."""
    clip_value: PositiveFloat = 0.2
    kl_coefficient: Annotated[float, Field(ge=0)] = 0.05
    kl_estimator: Literal["k1", "k2", "k3"] | None = None
    """Schulman's estimators of the KL from one sample; None: k1 in the reward, k3 in the loss."""
    entropy_coefficient: Annotated[float, Field(ge=0)] = 0.0
    aggregate: Literal["token_mean", "sequence_mean"] | None = None
    """Mean of a loss over tokens, or over sequences of their own means; None: the algorithm's."""
    whiten_advantages: bool | None = None
    """GAE alone: zero mean and unit variance over the batch's response tokens; None: the
    algorithm's."""
    overlong_buffer_tokens: Annotated[int, Field(ge=0)] = 0
    """DAPO: the last tokens before the maximum over which the penalty grows from 0 to 1."""
    cost_limit: float = 0.0
    """Safe-RLHF: the multiplier grows while the mean cost is above."""
    initial_multiplier: PositiveFloat = 1.0
    multiplier_learning_rate: PositiveFloat = 0.1
    maximum_multiplier: PositiveFloat = 5.0
    pretrain_coefficient: Annotated[float, Field(ge=0)] = 1.0
    dynamic_sampling_max_rounds: PositiveInt = 10

    def wrong_correction(
        self,
        *,
        staleness: int,
        old_log_probs: Literal["recompute", "rollout"],
        has_importance_ratio: bool,
    ) -> "WrongSetting | None":
        """What of the correction for old rollouts does not fit a job; None: it fits.

        Args:
            staleness: How many iterations old rollouts may be (`search.staleness`).
            old_log_probs: The workload's: what the loss has its ratio to.
            has_importance_ratio: Whether the program's loss has such a ratio.
        """
        name, cap = self.off_policy_correction, self.importance_weight_cap
        field = "algorithm.off_policy_correction"
        if name is None and cap is not None:
            what = f"it is {cap:g}, but no correction is chosen"
            remedy = f"leave it out, or set {field}"
            return WrongSetting("algorithm.importance_weight_cap", cap, what, remedy)
        if name is not None and not has_importance_ratio:
            what = f"it is {name}, but the loss has no importance ratio that it could correct"
            return WrongSetting(field, name, what, "leave it out")
        if staleness and not has_importance_ratio:
            what = f"it is {staleness}, but the loss has no importance ratio to correct for it"
            return WrongSetting("search.staleness", staleness, what, "plan with 0")
        if name is not None and old_log_probs == "rollout":
            what = (
                f"it is {name}, but with workload.old_log_probs: rollout the loss has the ratio to "
                "the weights that generated already"
            )
            remedy = "leave it out, or plan with old_log_probs: recompute"
            return WrongSetting(field, name, what, remedy)
        if name is None and staleness and old_log_probs == "recompute":
            what = (
                f"it is not set, but rollouts may be {staleness} iterations old (search.staleness) "
                "and the loss has the ratio to newer weights (workload.old_log_probs: recompute)"
            )
            remedy = (
                "use decoupled_ppo or truncated_importance_sampling, or plan with old_log_probs: "
                "rollout"
            )
            return WrongSetting(field, None, what, remedy)
        return None


class WrongSetting(NamedTuple):
    """A setting that a job cannot be run with."""

    field: str
    value: object
    message: str
    remedy: str


class RolloutSettings(SettingsModel):
    """How the actor generates."""

    temperature: PositiveFloat = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: int = -1
    max_running_sequences: PositiveInt = 256
    prefix_caching: bool = False
    steps_per_turn: PositiveInt = 16
    """With continuous rollouts and streamed responses: steps that engines make before they hand out
    what has ended, and take new requests or new weights."""


class PretrainSettings(SettingsModel):
    """Text for PPO-ptx, the pre-train loss beside that of the policy."""

    path: Path
    """A .parquet or .jsonl file."""
    column: str = "text"
    """Text, or a list of token ids."""
    tokenizer: Path | None = None
    """A Hugging Face tokenizer folder; None: that of the prompts."""
    max_tokens: Annotated[int, Field(ge=2)] | None = None
    """At which a row is cut; None: the longest prompt and response together, which is the most."""


class DataSettings(SettingsModel):
    """Where prompts come from."""

    path: Path
    """A .parquet or .jsonl file."""
    prompt_column: str = "prompt"
    """Text, or a list of chat messages."""
    answer_column: str | None = None
    """What a reward function may compare with."""
    tokenizer: Path | None = None
    """A Hugging Face tokenizer folder; None: prompts are lists of token ids."""
    chat_template: bool = False
    overlong: Literal["error", "drop", "truncate_left"] = "error"
    """What to do with a prompt above the spec's maximum length."""
    pretrain: PretrainSettings | None = None
    """Needed with the workload's pretrain_loss."""

    def function_keywords(self) -> tuple[str, ...]:
        """The keywords that a reward function may take of a run with these rows."""
        answers = ("answers",) if self.answer_column is not None else ()
        texts = ("prompts", "responses") if self.tokenizer is not None else ()
        return "prompt_tokens", "response_tokens", "finished", *answers, *texts


class CheckpointSettings(SettingsModel):
    """When and where the run's state is saved."""

    every_iterations: PositiveInt | None = None
    """Save after so many iterations, and after the last; None: never, and a run that is ended early
    cannot be resumed."""
    keep_last: PositiveInt = 2
    resume: bool = True
    """Continue from the newest whole checkpoint of the output folder, if there is one."""


class MetricsSettings(SettingsModel):
    """Where the metrics of every iteration are written."""

    loggers: list[Literal["jsonl", "tensorboard", "mlflow", "wandb"]] = ["jsonl", "tensorboard"]
    """Files in the run's folder, MLflow, Weights & Biases; the last two need their packages."""
    project: str = "automap"
    """MLflow's experiment, Weights & Biases' project."""
    mlflow_tracking_uri: str | None = None
    """A server's address or a folder; None: MLflow's own default."""
    wandb_mode: Literal["online", "offline"] = "online"
    """Offline: into the run's folder, for `wandb sync`."""


class FunctionSettings(SettingsModel):
    """A reward (or cost) computed by a Python function.

    The spec's `concurrency` says how many processes score parts of a batch at once; where it does
    not, one scores all of it.
    """

    path: str
    """module:function, or file.py:function."""
    timeout_seconds: PositiveFloat = 30.0
    """For one batch of responses."""


class RunSettings(SettingsModel):
    """One run of a plan."""

    models: dict[str, Path] = {}
    """Role → Hugging Face folder; a role without one starts from random weights of its seed. The
    reference defaults to the actor's weights, the critic to the reward model's."""
    functions: dict[str, FunctionSettings] = {}
    """Role → function, for roles that the spec declares as functions."""
    program: str | None = None
    """module:NAME, or file.py:NAME, of the `Program` that a plan of an explicit dataflow runs; the
    other plans name a built-in one."""
    data: DataSettings
    training: dict[str, TrainingSettings] = {}
    """Role → settings; `default` serves the others."""
    algorithm: AlgorithmSettings = AlgorithmSettings()
    rollout: RolloutSettings = RolloutSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    metrics: MetricsSettings = MetricsSettings()
    iterations: PositiveInt | None = None
    """Number of iterations to run; None: that of the spec."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    call_timeout_seconds: PositiveFloat = 1800.0
    """A call that takes longer is reported with rank and name, and the run ends."""
    start_timeout_seconds: PositiveFloat = 600.0
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """Times that a run resumes by itself after a worker or the controller died."""

    def training_of(self, role: str) -> TrainingSettings:
        """A role's settings, or the default ones."""
        return self.training.get(role) or self.training.get("default") or TrainingSettings()
