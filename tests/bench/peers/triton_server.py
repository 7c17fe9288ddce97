"""A bare Triton with the workload in its Python backend: the limit of any gateway before it.

`python -m tests.bench.peers.triton_server FOLDER`: lays out the model repository there, and
becomes the server. The Triton is the one in `nvidia-pytriton`. Tensors pass as DLPack, so that
NumPy's version does not matter.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from tests.bench.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent.parent.parent
MODEL = f"""
import os
import sys

import torch
import triton_python_backend_utils as triton
from torch.utils.dlpack import from_dlpack

sys.path.insert(0, {str(ROOT)!r})  # Triton does not hand PYTHONPATH on
from tests.bench.workloads import build


class TritonPythonModel:
    def initialize(self, args):
        self.module = build(os.environ["BENCH_WORKLOAD"])

    def execute(self, requests):
        found = [triton.get_input_tensor_by_name(request, "input_0") for request in requests]
        rows = [from_dlpack(tensor.to_dlpack()) for tensor in found]
        with torch.inference_mode():
            output = self.module(torch.cat(rows))
        parts = torch.split(output, [len(part) for part in rows])
        return [
            triton.InferenceResponse([triton.Tensor.from_dlpack("output_0", part.contiguous())])
            for part in parts
        ]
"""
CONFIG = """
name: "model"
backend: "python"
max_batch_size: {max_batch}
input {{ name: "input_0" data_type: {datatype} dims: {row} }}
output {{ name: "output_0" data_type: TYPE_FP32 dims: {output} }}
dynamic_batching {{ }}
instance_group {{ count: {copies} kind: KIND_CPU }}
"""
STUB = """\
#!/bin/sh
export PATH={bin}:/usr/bin:/bin VIRTUAL_ENV={prefix}
export OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads}
export LD_LIBRARY_PATH={libraries}
exec {stub} "$@"
"""
DATATYPES = {"float32": "TYPE_FP32", "int64": "TYPE_INT64"}


def main(folder: Path) -> None:
    """Lay out the repository and start the server on it; does not return."""
    package = find_spec("pytriton")
    if package is None or package.origin is None:
        raise SystemExit("nvidia-pytriton is not installed in this environment.")
    home = Path(package.origin).parent / "tritonserver"
    libraries = home.parent.parent / "nvidia_pytriton.libs"
    backend, model = folder / "backends" / "python", folder / "repository" / "model"
    stub = home / "python_backend_stubs" / sysconfig.get_python_version()
    backend.mkdir(parents=True)
    for file in (home / "backends" / "python").iterdir():
        (backend / file.name).symlink_to(file)
    (backend / "triton_python_backend_stub").unlink(missing_ok=True)
    (backend / "triton_python_backend_stub").symlink_to(stub / "triton_python_backend_stub")
    _write_model(model, stub / "triton_python_backend_stub", libraries)
    os.environ["LD_LIBRARY_PATH"] = str(libraries)
    os.execv(home / "bin" / "tritonserver", _command(folder))


def _write_model(model: Path, stub: Path, libraries: Path) -> None:
    workload = WORKLOADS[os.environ["BENCH_WORKLOAD"]]
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(
        CONFIG.format(
            max_batch=os.environ["BENCH_MAX_BATCH"],
            copies=os.environ["BENCH_COPIES"],
            datatype=DATATYPES[workload.dtype],
            row=list(workload.row),
            output=list(workload.output),
        )
    )
    wrapper = model / "triton_python_backend_stub"  # Python becomes the environment's by PATH
    wrapper.write_text(
        STUB.format(
            bin=shlex.quote(str(Path(sys.prefix) / "bin")),
            prefix=shlex.quote(sys.prefix),
            threads=os.environ["BENCH_THREADS"],
            libraries=shlex.quote(f"{sysconfig.get_config_var('LIBDIR')}:{libraries}"),
            stub=shlex.quote(str(stub)),
        )
    )
    wrapper.chmod(0o755)


def _command(folder: Path) -> list[str]:
    return [
        "tritonserver",
        f"--model-repository={folder / 'repository'}",
        f"--backend-directory={folder / 'backends'}",
        "--disable-auto-complete-config",
        "--http-address=127.0.0.1",
        f"--http-port={os.environ['BENCH_PORT']}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--exit-timeout-secs=3",
        "--pinned-memory-pool-byte-size=0",
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
