"""The files that make Triton's Python backend run an MLflow model.

They run in the model's environment, not in ours: they are copied, never imported from here.
"""

from __future__ import annotations

from pathlib import Path

SHIM_FILES: tuple[Path, ...] = tuple(
    Path(__file__).with_name(name) for name in ("model.py", "shoal_answers.py", "shoal_busy.py")
)
"""All of them go into a model repository's version folder (`REPO/model/1/`), names kept."""
