"""How long the service is silent while somebody posts the largest bodies that it takes.

    python -m benchmarks.service_bodies

A real service on loopback with a new SQLite database. While each body is posted, `/healthz` and a
list of plans are asked in turns, every few milliseconds. Quote the figures with the load of the
machine, which is printed.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.service_reads import Connection, service
from tests.service.support.processes import peak_bytes

LARGEST = 30 * 2**20
MEGABYTE = 2**20 - 2**10
PAUSE_SECONDS = 0.005
ASKED = ("/healthz", "/v1/plans?limit=5")
FINGERPRINT = '{"identity":{"device_type":"cpu"}}'


def measurements(most_bytes: int) -> Iterator[str]:
    """Different shapes of a table, as many as fit."""
    size = number = 0
    while size < most_bytes:
        key = {"precision": "fp32", "collector": "torch", "m": number + 1, "n": 64, "k": 64}
        times = {"seconds": 0.001, "low": 0.0009, "high": 0.0011, "samples": 30}
        text = json.dumps({"table": "gemm", "key": key, **times})
        yield text
        size += len(text) + 1
        number += 1


def bodies() -> Iterator[tuple[str, str, str]]:
    """What they are, where they are posted, and their text."""
    head = f'{{"fingerprint":{FINGERPRINT},"measurements":['
    yield "a profile", "/v1/profiles", head + ",".join(measurements(LARGEST - 2000)) + "]}"
    wrong = "{}," * 480_000
    yield (
        "a profile, all wrong",
        "/v1/profiles",
        f'{{"fingerprint":{{}},"measurements":[{wrong}{{}}]}}',
    )
    yield "numbers", "/v1/profiles", "[" + "1.23456789012," * 2_000_000 + "0]"
    yield "objects", "/v1/profiles", "[" + '{"a":1},' * 1_900_000 + "0]"
    yield "one text", "/v1/profiles", '"' + "x" * LARGEST + '"'
    yield "a spec of objects", "/v1/plans", '{"models":[' + "{}," * (MEGABYTE // 3) + "{}]}"
    pools = "{}," * (MEGABYTE // 3)
    yield (
        "a placement, all wrong",
        "/v1/estimates",
        (f'{{"spec":{{}},"placement":{{"copies":[{pools}{{}}],"calls":[]}}}}'),
    )


async def silence(port: int, path: str, text: str) -> tuple[int, float, list[list[float]]]:
    """Status and seconds of a post, and what each question took meanwhile."""
    connection = await Connection.to(port)
    posting = asyncio.create_task(connection.ask("POST", path, text.encode()))
    latencies: list[list[float]] = [[] for _ in ASKED]
    other = await Connection.to(port)
    began = time.perf_counter()
    while not posting.done():
        for place, question in zip(latencies, ASKED, strict=True):
            asked = time.perf_counter()
            status, _ = await other.ask("GET", question)
            place.append(time.perf_counter() - asked)
            assert status == 200
        await asyncio.sleep(PAUSE_SECONDS)
    seconds = time.perf_counter() - began
    status, _ = await posting
    for each in (connection, other):
        await each.close()
    return status, seconds, latencies


def main() -> None:
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
        for name, path, text in bodies():
            status, seconds, latencies = asyncio.run(silence(running.port, path, text))
            told = "; ".join(
                f"{question} {1e3 * max(each):.0f} ms at most of {len(each)}"
                for question, each in zip(ASKED, latencies, strict=True)
            )
            print(f"{name}, {len(text) / 2**20:.1f} MiB: {status} after {seconds:.1f} s; {told}")
        print(f"most memory of the API: {peak_bytes(running.process.pid) / 1e6:.0f} MB")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
