"""Loaded before Django's settings (`-p` in pyproject.toml): a data directory of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

DATA_DIR = Path(tempfile.mkdtemp(prefix="shoal-tests-"))
(DATA_DIR / "static").mkdir()  # whitenoise warns without it
atexit.register(shutil.rmtree, DATA_DIR, ignore_errors=True)

os.environ["SHOAL_DATA_DIR"] = str(DATA_DIR)
os.environ["REDIS_URL"] = f"unix://{DATA_DIR / 'valkey.sock'}"
os.environ["SHOAL_LOG_LEVEL"] = "WARNING"
os.environ.setdefault("SHOAL_SECRET_KEY", "only-for-tests")
os.environ["SHOAL_PROFILE_BUDGET_S"] = "0"  # those that are about it turn it on
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright's loop runs in the test's thread
