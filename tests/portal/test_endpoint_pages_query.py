"""What the Query tab reads of the gateway's answer."""

from __future__ import annotations

import pytest

from portal.endpoints.pages.query import Answer


def split_of(header: str | None) -> list[tuple[str, float]]:
    answer = Answer(
        status=200,
        reason="OK",
        elapsed_ms=12.0,
        text="{}",
        is_cut=False,
        headers={} if header is None else {"server-timing": header},
    )
    return [(share.label, share.ms) for share in answer.split]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            "gateway;dur=0.81, queue;dur=3.20, compute;dur=6.10",
            [("gateway", 0.81), ("waiting for the model", 3.2), ("the model's call", 6.1)],
        ),
        ("gateway;dur=1, replica;dur=20", [("gateway", 1.0), ("the replica", 20.0)]),
        ('compute;desc="call";dur="6.5",cache;dur=1', [("the model's call", 6.5)]),
        ("gateway, queue;dur=soon, compute;dur=1.2.3", []),
        ("", []),
        (None, []),
    ],
)
def test_the_split_of_the_time_is_what_the_gateway_tells(
    header: str | None, expected: list[tuple[str, float]]
) -> None:
    assert split_of(header) == expected
