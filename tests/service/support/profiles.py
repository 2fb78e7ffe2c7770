"""A profile as clients send it."""

import copy
from typing import Any

from fastapi.testclient import TestClient

from automap.service.api.examples import PROFILE_EXAMPLES
from tests.service.support.samples import Json

EXAMPLE: Json = PROFILE_EXAMPLES["one product"]["value"]


def profile(*, factor: float = 1.0, **identity: Any) -> Json:
    """Products and element-wise operators of a core, `factor` times as slow."""
    new = copy.deepcopy(EXAMPLE)
    new["fingerprint"]["identity"] |= identity
    new["measurements"] = [
        {
            "table": "gemm",
            "key": {"precision": "fp32", "collector": "torch", "m": m, "n": n, "k": k},
            "seconds": factor * 2e-10 * m * n * k,
        }
        for m in (16, 1024)
        for n in (64, 512)
        for k in (64, 512)
    ] + [
        {
            "table": "memory_bound",
            "key": {"operator": name, "num_bytes": size},
            "seconds": factor * 1e-10 * size,
        }
        for name in ("add", "copy", "rms_norm", "silu_multiply")
        for size in (2**16, 2**24)
    ]
    return new


def stored(client: TestClient, new: Json) -> str:
    response = client.post("/v1/profiles", json=new)
    assert response.status_code == 201, response.text
    version: str = response.json()["version"]
    assert response.headers["location"] == f"/v1/profiles/{version}"
    return version
