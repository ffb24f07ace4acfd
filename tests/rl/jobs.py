"""The job that tests of this folder change."""

import functools

from rfabric.rl import read_recipe

recipe = functools.cache(lambda *overrides: read_recipe("grpo-64", overrides))
