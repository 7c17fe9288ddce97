"""MLflow's scoring servers with secrets masked in what they answer to failures.

The files run in the model's environment, not in ours: they are copied, never imported from here.
"""

from __future__ import annotations

from pathlib import Path

from serving.replica import shoal_masking

SHIM_FILES: tuple[Path, ...] = (
    Path(__file__).with_name("shoal_asgi.py"),
    Path(__file__).with_name("shoal_wsgi.py"),
    Path(shoal_masking.__file__),
)
"""All of them go into one folder that the server finds modules in, names kept."""
