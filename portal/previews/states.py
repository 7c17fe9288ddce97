"""The previews that exist; whether each is on is a row in the database."""

from __future__ import annotations

from dataclasses import dataclass

THROUGHPUT_OPTIMIZED = "throughput_optimized"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewInfo:
    """What a preview is; all are off until an admin turns them on."""

    name: str
    title: str
    description: str
    effect_of_off: str
    stage: str


PREVIEWS: dict[str, PreviewInfo] = {
    THROUGHPUT_OPTIMIZED: PreviewInfo(
        name=THROUGHPUT_OPTIMIZED,
        title="Throughput optimized serving (Triton)",
        description=(
            "Served entities on GPU compute can run behind the NVIDIA Triton Inference Server, "
            "which joins concurrent requests into batches before they reach the model. People "
            "choose it with a checkbox when they create or edit an endpoint."
        ),
        effect_of_off=(
            "Turning it off leaves running deployments as they are. The next deploy of an endpoint "
            "drops Triton and uses the standard backend."
        ),
        stage="Beta",
    )
}
