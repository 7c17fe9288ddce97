"""The files that make Triton's Python backend run an MLflow model.

They run in the model's environment, not in ours: they are copied, never imported from here.
"""

from __future__ import annotations

from pathlib import Path

from serving.replica import shoal_masking

SHIM_FILES: tuple[Path, ...] = (
    *(Path(__file__).with_name(n) for n in ("model.py", "shoal_answers.py", "shoal_busy.py")),
    Path(shoal_masking.__file__),
)
"""All of them go into a model repository's version folder (`REPO/model/1/`), names kept."""
