"""hdbscan's own tests and scikit-learn's of HDBSCAN, run with our class; `tests_of_hdbscan` says which do not apply."""

import pytest
from tests_of_others import run_tests_of

pytest.importorskip("hdbscan")


@pytest.mark.full
@pytest.mark.parametrize("module", ["hdbscan.tests.test_hdbscan", "sklearn.cluster.tests.test_hdbscan"])
def test_their_tests(module, device):
    assert run_tests_of(module, device, "tests_of_hdbscan") > 100
