"""A training set over four domains from raw public files: without overlaps, sharded, verified, described."""

from smopd.data.training_set.compose import DOMAINS, BuildPlan, Built, build, write

__all__ = ["DOMAINS", "BuildPlan", "Built", "build", "write"]
