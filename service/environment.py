"""What other processes inherit of the service's environment, which holds its keys and passwords."""

import ctypes
import os
import sys
from collections.abc import Iterable

_NAMES = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "TERM"),
        *("TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME", "NO_PROXY", "no_proxy"),
        *("HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "HF_HOME", "HF_HUB_CACHE"),
        *("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "CC", "CXX"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
_PREFIXES = (
    *("CUDA_", "GLOO_", "KMP_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTHON"),
    *("PYTORCH_", "RAY_", "ROCR_", "HIP_", "TORCH_", "TRITON_", "VLLM_", "UCX_", "FI_"),
)
_PR_SET_DUMPABLE = 4


def passed_on(also: Iterable[str] = ()) -> dict[str, str]:
    """Variables that say where things are and how to compute, and those that an operator names."""
    named = _NAMES.union(also)
    return {
        name: value
        for name, value in os.environ.items()
        if name in named or name.startswith(_PREFIXES)
    }


def hide_environment() -> None:
    """On Linux, keep other processes of our user from reading ours in /proc.

    Jobs on this machine run as the same user.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
