"""The files that make Triton's Python backend run an MLflow model.

They run in the model's environment, not in ours: they are copied, never imported from here.
"""

from __future__ import annotations

from pathlib import Path

from serving.replica import shoal_masking

SHIM_FILES: tuple[Path, ...] = (
    *sorted(file for file in Path(__file__).parent.glob("*.py") if file.name != "__init__.py"),
    Path(shoal_masking.__file__),
)
"""All of them go into a model repository's version folder (`REPO/model/1/`), names kept."""
