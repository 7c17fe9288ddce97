"""Run by `portal.logs.filters` as a program: match a pattern against texts, JSON in and out."""

from __future__ import annotations

import json
import re
import sys


def main() -> None:
    """Answer for each text the places of its matches, null where there is none."""
    question = json.load(sys.stdin)
    pattern = re.compile(question["pattern"], 0 if question["match_case"] else re.IGNORECASE)
    answer = []
    for text in question["texts"]:
        found = [match.span() for match in pattern.finditer(text)]
        answer.append([span for span in found if span[0] < span[1]] if found else None)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
