"""A script of pandas and scikit-learn, unchanged, under RAPIDS' accelerators: ``cudf.pandas`` and ``cuml.accel``."""

import importlib.util

import numpy as np
import pytest
from repository import run

import rapids_slink

SCRIPT = """
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rapids_slink

rng = np.random.default_rng(0)
centres = pd.DataFrame({"x": [0.0, 20.0, 40.0], "y": [5.0, 0.0, 5.0]})
df = centres.loc[np.arange(3000) % 3].reset_index(drop=True) + rng.normal(size=(3000, 2))
model = rapids_slink.fit(df, n_clusters=3)
df["cluster"] = model.labels_
print(df.groupby("cluster")["x"].agg(["size", "mean"]).round(9).to_string())
print(model.cut(distance_threshold=1.0).max(), model.linkage_["height"].iloc[-1])
scaled = make_pipeline(StandardScaler(), rapids_slink.SingleLinkage(n_clusters=3)).fit_predict(df[["x", "y"]])
print(np.bincount(np.asarray(scaled)))
print(rapids_slink.HDBSCAN(min_cluster_size=50).fit(df[["x", "y"]]).labels_.value_counts().sort_index().to_string())
print(rapids_slink.plan(df[["x", "y"]])["fits"])
"""


def printed(tmp_path, *options):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return run("-W", "ignore", *options, script).stdout


@pytest.mark.full
def test_the_script_runs_alone(tmp_path):
    lines = printed(tmp_path).splitlines()
    assert [line.split()[:2] for line in lines[2:5]] == [["0", "1000"], ["1", "1000"], ["2", "1000"]]
    assert lines[-1] == "True"


@pytest.mark.parametrize("module", ["cudf.pandas", pytest.param("cuml.accel", marks=pytest.mark.gpu)])
def test_the_script_runs_under(tmp_path, module):
    """On a GPU; ``cudf.pandas`` also without one, where it is pandas. cuML's accelerator fails there by itself."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"{module} is not installed")
    assert printed(tmp_path, "-m", module) == printed(tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(50_000, 3), (20_000, 64), (2000, 8), (1000, 1)])
def test_ranges_of_nvtx_are_the_stages(watch, shape):
    import cupy

    pushed = watch(cupy.cuda.nvtx, "RangePush", lambda result, name, *_: name)
    report = rapids_slink.fit(np.random.default_rng(0).standard_normal(shape), 3, device="cuda").report_
    assert set(pushed) == {f"rapids_slink.{name}" for name in report["seconds"] if name != "compiling"}
