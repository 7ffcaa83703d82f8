"""Names of clusters that stay when rows are added: `append(..., keep_labels=True)`, against the rule in Python."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapids_slink import HDBSCAN, SingleLinkage, fit, load
from rapids_slink.dendrogram import changes_of, kept_names
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import to_host


def named(before, after, clusters, unused):
    """The names by the rule, cluster by cluster."""
    common = Counter((new, old) for old, new in zip(before, after, strict=False) if old >= 0 and new >= 0)
    wanted = {}
    for new in range(clusters):
        most = [(-rows, old) for (one, old), rows in common.items() if one == new]
        if most:
            rows, old = min(most)
            wanted.setdefault(old, []).append((rows, new))
    takes = {min(who)[1]: old for old, who in wanted.items()}
    names = []
    for new in range(clusters):
        names.append(takes.get(new, unused))
        unused += new not in takes
    return names


LABELS = st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 5)), max_size=30)


@given(pairs=LABELS, more=st.integers(0, 3))
def test_names_by_the_rule(pairs, more):
    before, after = (np.array([pair[i] for pair in pairs], np.int32) for i in (0, 1))
    clusters, unused = int(after.max(initial=-1)) + 1 + more, int(before.max(initial=-1)) + 1 + more
    found = kept_names(before, after, clusters, unused)
    assert found.dtype == np.int32
    assert found.tolist() == named(before.tolist(), after.tolist(), clusters, unused)
    assert len(set(found.tolist())) == clusters


@given(pairs=LABELS)
def test_changes_count_the_common_rows(pairs):
    before, after = (np.array([pair[i] for pair in pairs], np.int32) for i in (0, 1))
    common = Counter(pair for pair in pairs if pair[0] >= 0)
    expected = [
        (
            *pair,
            common[pair],
            pair[1] >= 0 and sum(new == pair[1] for _, new in common) > 1,
            sum(old == pair[0] for old, _ in common) > 1,
        )
        for pair in sorted(common)
    ]
    found = changes_of(before, after)
    assert list(zip(*(column.tolist() for column in found.values()), strict=True)) == expected
    assert [column.dtype for column in found.values()] == [np.int32, np.int32, np.int64, bool, bool]


def test_names_stay_over_many_appends(device):
    """The clusters are those of a fit of all rows, the names those of before; a name that was lost does not return."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(np.round(rng.normal(size=(400, 2)) + rng.integers(0, 6, (400, 1)) * 3, 2), columns=["x", "y"])
    how = {"distance_threshold": 0.8, "min_cluster_size": 3, "device": device}
    model = SingleLinkage(prediction_data=True, **how).fit(X[:80])
    had, unused = set(), 0
    for start, stop in [(80, 100), (100, 101), (101, 250), (250, 400)]:
        before = on_host(model.labels_)
        had |= set(before[before >= 0])
        unused = max(unused, max(had) + 1)
        assert model.append(X[start:stop], keep_labels=True) is model
        labels, plain = on_host(model.labels_), on_host(fit(X[:stop], **how).labels_)
        names = named(before.tolist(), plain.tolist(), plain.max() + 1, unused)
        assert labels.tolist() == [-1 if label < 0 else names[label] for label in plain]
        assert labels.index.equals(plain.index)
        assert labels.dtype == np.int32
        assert model.n_clusters_ == plain.max() + 1
        changes = on_host(model.label_changes_)
        assert changes.to_dict("list") == {
            name: column.tolist()
            for name, column in changes_of(before.to_numpy(), labels[: len(before)].to_numpy()).items()
        }
        unused = max(unused, max(names) + 1)
    assert set(labels) - {-1} != set(range(model.n_clusters_))
    model.append(X[:1].set_axis(["new"]))
    assert set(on_host(model.labels_)) - {-1} == set(range(model.n_clusters_))
    assert not hasattr(model, "label_changes_")


def kept_model(device):
    X = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1, 9.0, 9.1], "y": 0.0})
    model = SingleLinkage(distance_threshold=3.0, prediction_data=True, device=device).fit(X)
    return model.append(pd.DataFrame({"x": [2.5, 20.0, 20.1], "y": 0.0}), keep_labels=True)


def test_what_a_model_of_kept_names_can_do(device, tmp_path):
    model = kept_model(device)
    labels = on_host(model.labels_).tolist()
    assert labels == [0, 0, 0, 0, 2, 2, 0, 3, 3]
    expected = [[0, 0, 2, True, False], [1, 0, 2, True, False], [2, 2, 2, False, False]]
    assert on_host(model.label_changes_).values.tolist() == expected
    model.save(tmp_path / "model.slink")
    again = load(tmp_path / "model.slink")
    assert on_host(again.label_changes_).equals(on_host(model.label_changes_))
    new = pd.DataFrame({"x": [8.0, 40.0], "y": 0.0})
    for one in (model, again):
        assert on_host(one.labels_).tolist() == labels
        assert to_host(one.predict(new).values).tolist() == [2, -1]
        assert on_host(one.catalogue(min_size=1))["label"].tolist() == [0, 2, 3]
        assert on_host(one.reduce_outliers()).tolist() == labels
        assert "9 rows in 3 clusters" in one._repr_html_()
        table = one.to_frame(medoids=True)
        assert table.index.tolist() == [0, 2, 3]
        assert table[["size", "first_row", "medoid"]].to_numpy().tolist() == [[5, 0, 0], [2, 4, 4], [2, 1, 1]]
        one.plot_clusters(np.zeros((9, 2)))
        one.plot()
    again.append(pd.DataFrame({"x": [60.0], "y": 0.0}), keep_labels=True)
    assert on_host(again.labels_).tolist() == [*labels, 4]


def test_appends_that_keep_no_labels(device):
    X = np.arange(8.0)[:, None]
    model = HDBSCAN(2, 1, prediction_data=True, device=device).fit(X)
    with pytest.raises(ValueError, match="keep_labels is for SingleLinkage: attributes of HDBSCAN go by the labels"):
        model.append(X, keep_labels=True)
    assert model.n_leaves_ == 8
