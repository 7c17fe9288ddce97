"""What a replica's processes see of the environment they were started from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from serving.replica.shoal_masking import NAMES, spellings
from serving.spec import DeviceKind, ReplicaSpec

INHERITED = frozenset(
    {
        *("PATH", "HOME", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    }
)
INHERITED_PREFIXES = ("LC_", "NVIDIA_", "CUDA_")
"""Everything else, the portal's secrets above all, is no business of a model's."""

MARK = "SHOAL_REPLICA_DIRECTORY"
"""Set for every process of a server, so that left-over ones are found (`processes.end_marked`)."""

SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_KEY", re.IGNORECASE
)
LEAST_SECRET_LENGTH = 8  # shorter values would mask half of every line
LEAST_DECLARED_LENGTH = 4  # of what is known to be a secret


def inherited_environment() -> dict[str, str]:
    """Give the part of this process's environment that is passed on."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }


def server_environment(spec: ReplicaSpec) -> dict[str, str]:
    """Give the environment of a replica's server: inherited, the user's own, then what must be."""
    variables: Mapping[str, str] = inherited_environment() | dict(spec.environment_variables)
    is_cuda = spec.device.kind is DeviceKind.CUDA
    return {
        **variables,
        "PATH": f"{spec.environment.directory / 'bin'}:{variables.get('PATH') or os.defpath}",
        "VIRTUAL_ENV": str(spec.environment.directory),
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi counts
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.device.indices)) if is_cuda else "",
        MARK: str(spec.directory),
        NAMES: ",".join(secret_variables(spec)),
    }


def secret_values(spec: ReplicaSpec) -> tuple[str, ...]:
    """Give what must not show in a log, in every spelling, the longest first."""
    values = [spec.environment_variables[name] for name in secret_variables(spec)]
    found = {spelling for value in values for spelling in spellings(value)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def secret_variables(spec: ReplicaSpec) -> tuple[str, ...]:
    """Give the variables whose values are masked: declared ones, and those named like a secret."""
    return tuple(
        name for name, value in spec.environment_variables.items() if _is_masked(spec, name, value)
    )


def _is_masked(spec: ReplicaSpec, name: str, value: str) -> bool:
    if name in spec.secret_names:
        return len(value) >= LEAST_DECLARED_LENGTH
    return len(value) >= LEAST_SECRET_LENGTH and SECRET_NAME.search(name) is not None
