"""Tests leave nothing in the user's cache folder; those of kept plans have a folder of their own."""

import os

os.environ["JOINSUM_PLAN_CACHE"] = "0"
