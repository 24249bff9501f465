"""Laws have the mean, the variance, the quantiles and the distribution that they promise.

References are scipy's. Seeds are fixed; tolerances are four standard errors, and a
Kolmogorov-Smirnov test of a correct law fails for one seed in a thousand.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from testbed.durations import LAWS, Cvb, Law, QuantileLaw
from testbed.durations.laws import Constant, Exponential, Gamma, Pareto, ShiftedExponential, Uniform
from testbed.random_streams import stream

MEAN = 0.05
DRAWS = 40_000
CASES: list[tuple[Law, Any]] = [
    (Uniform(MEAN), stats.uniform(0, 2 * MEAN)),
    (Exponential(MEAN), stats.expon(scale=MEAN)),
    (ShiftedExponential(MEAN, 0.3), stats.expon(0.7 * MEAN, 0.3 * MEAN)),
    (ShiftedExponential(MEAN, 1.0), stats.expon(scale=MEAN)),
    (Pareto(MEAN, 5.0), stats.pareto(5.0, scale=MEAN * 4 / 5)),
    (Pareto(MEAN, 1.5), stats.pareto(1.5, scale=MEAN / 3)),
    (Gamma(MEAN, 0.1), stats.gamma(100, scale=MEAN / 100)),
    (Gamma(MEAN, 1.0), stats.expon(scale=MEAN)),
    (Gamma(MEAN, 2.0), stats.gamma(0.25, scale=MEAN * 4)),
]
NAMES = [repr(law) for law, _ in CASES]


def draw(law: Law, count: int = DRAWS) -> npt.NDArray[np.float64]:
    own = stream(5, "test")
    return np.array([law.sample(own) for _ in range(count)])


@pytest.mark.parametrize(("law", "reference"), CASES, ids=NAMES)
def test_a_law_equals_scipy_s_distribution(law: Law, reference: Any) -> None:
    sample = draw(law)
    assert type(law.sample(stream(5, "test"))) is float
    assert stats.kstest(sample, reference.cdf).pvalue > 0.001
    assert law.mean == pytest.approx(reference.mean())
    assert law.variance == pytest.approx(reference.var())
    if isinstance(law, QuantileLaw):
        shares = np.array([0, 0.001, 0.05, 0.5, 0.95, 0.9999])
        expected = reference.ppf(shares)
        assert [law.quantile(share) for share in shares] == pytest.approx(expected.tolist())


FINITE = [case for case in CASES if math.isfinite(case[1].stats("k"))]


@pytest.mark.parametrize(("law", "reference"), FINITE, ids=[repr(law) for law, _ in FINITE])
def test_samples_have_the_mean_and_variance(law: Law, reference: Any) -> None:
    sample = draw(law)
    assert abs(sample.mean() - law.mean) < 4 * math.sqrt(law.variance / DRAWS)
    kurtosis = float(reference.stats("k")) + 3
    error = law.variance * math.sqrt((kurtosis - 1) / DRAWS)
    assert abs(sample.var() - law.variance) < 4 * error


def test_draws_equal_numpy_s_from_the_same_stream() -> None:
    """Runs with published seeds waited for these durations."""
    theirs = stream(5, "test")
    assert draw(Exponential(MEAN), 9).tolist() == [theirs.exponential(MEAN) for _ in range(9)]
    theirs = stream(5, "test")
    assert draw(Uniform(MEAN), 9).tolist() == [theirs.uniform(0.0, 2 * MEAN) for _ in range(9)]


@pytest.mark.parametrize(
    "law", [Constant(MEAN), ShiftedExponential(MEAN, 0.0), Gamma(MEAN, 0.0)], ids=repr
)
def test_a_law_that_does_not_vary_draws_its_mean(law: Law) -> None:
    assert set(draw(law, 20)) == {MEAN}
    assert law.variance == 0


def test_constant_has_one_quantile() -> None:
    assert Constant(MEAN).quantile(0.3) == MEAN


@pytest.mark.parametrize("name", LAWS)
def test_a_mean_of_zero_draws_only_zeros(name: str) -> None:
    options = {"shifted-exponential": [0.5], "pareto": [1.5], "gamma": [0.5]}.get(name, [])
    law = LAWS[name](0.0, *options)
    assert set(draw(law, 20)) == {0.0}
    assert law.variance == 0


@pytest.mark.parametrize("shape", [1.0001, 1.5, 2.0])
def test_heavy_tailed_pareto_has_infinite_variance_and_finite_draws(shape: float) -> None:
    law = Pareto(MEAN, shape)
    assert law.variance == math.inf
    sample = draw(law)
    assert np.isfinite(sample).all()
    assert sample.min() >= law.smallest > 0


def cvb(machine_variation: float, machines: int, tasks: int) -> npt.NDArray[np.float64]:
    """Draw times of shape (machines, tasks), with a mean of 128 as in the paper's Figure 3."""
    law = Cvb(128.0, 0.1, machine_variation)
    rows = []
    for j in range(machines):
        machine, own = law.machine(stream(7, "machine", j)), stream(7, "tasks", j)
        rows.append([machine.sample(own) for _ in range(tasks)])
    return np.array(rows)


@pytest.mark.parametrize(("variation", "papers", "digit"), [(0.0, 0.01, 0.01), (0.6, 0.279, 0.001)])
def test_cvb_has_the_stragglers_of_the_paper_s_figure(
    variation: float, papers: float, digit: float
) -> None:
    """1 % of homogeneous and 27.9 % of heterogeneous tasks take over 1.25 times the mean."""
    middles = (np.arange(100_000) + 0.5) / 100_000
    machines = stats.gamma(1 / 0.36, scale=128 * 0.36).ppf(middles)
    p = machines if variation else np.array([128.0])
    exact = stats.gamma(100).sf(160 / p * 100).mean()
    assert abs(exact - papers) < digit / 2
    times = cvb(variation, 20_000, 1)[:, 0]
    assert abs((times > 160).mean() - exact) < 4 * math.sqrt(exact * (1 - exact) / len(times))


def test_cvb_has_the_variance_between_and_within_machines() -> None:
    times = cvb(0.6, 2000, 50)
    law = Cvb(128.0, 0.1, 0.6)
    assert law.variance == pytest.approx(128**2 * (1.36 * 1.01 - 1))
    means = times.mean(axis=1)
    assert abs(means.mean() - 128) < 4 * 128 * 0.6 / math.sqrt(2000)
    # A machine's own times vary by V_task of its own mean.
    within = times.std(axis=1, ddof=1) / means
    assert within.mean() == pytest.approx(0.1, rel=0.02)
    kurtosis = 3 + 6 * 0.36  # the machines' gamma law decides the error
    error = law.variance * math.sqrt((kurtosis - 1) / 2000)
    assert abs(times.var() - law.variance) < 4 * error
    reference = stats.gamma(1 / 0.36, scale=128 * 0.36)
    p = [law.machine(stream(7, "machine", j)).mean for j in range(2000)]
    assert stats.kstest(p, reference.cdf).pvalue > 0.001


def test_cvb_without_machine_variation_has_equal_machines() -> None:
    assert Cvb(2.0, 0.1, 0.0).machine(stream(1, "machine", 3)) == Gamma(2.0, 0.1)
