"""Turn pip's output into one short line a package, with seconds; errors pass through."""

from __future__ import annotations

import sys
import time

QUIET = (" ", "Processing", "Requirement", "Using", "Downloading", "Looking", "WARNING: Location")
begin = time.monotonic()
for line in sys.stdin:
    words = line.split()
    if words[:1] == ["Collecting"]:
        name = words[1].partition("==")[0]
        sys.stdout.write(f"[install] {time.monotonic() - begin:4.0f} s  {name}\n")
    elif words[:1] == ["Installing"]:
        sys.stdout.write(f"[install] {time.monotonic() - begin:4.0f} s  unpacking all of them\n")
    elif words[:1] == ["Successfully"]:
        sys.stdout.write(f"[install] {time.monotonic() - begin:4.0f} s  done\n")
    elif not line.startswith(QUIET):
        sys.stdout.write(line)
    sys.stdout.flush()
