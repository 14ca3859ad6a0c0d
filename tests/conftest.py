"""Chooses how Hypothesis draws examples.

Locally, examples are random, so that each run explores others. In CI (`HYPOTHESIS_PROFILE=ci`), they depend only on the
test and the version of Hypothesis, so that a run that passed before passes again.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # A busy machine is no fault.
)

profile = os.environ.get("HYPOTHESIS_PROFILE")
if profile:
    settings.load_profile(profile)
if profile == "ci":
    # Hypothesis also draws constants that it finds in the project's modules that are loaded by then. So a change in any
    # module, or a selection of tests, would give all tests other examples.
    providers._get_local_constants = Constants
