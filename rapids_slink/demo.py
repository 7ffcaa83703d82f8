"""The output of ``python -m rapids_slink --demo``: the urban belts of the world."""

from typing import Any

import numpy as np
import pandas as pd

import rapids_slink
from rapids_slink.datasets import EARTH_RADIUS, load_cities
from rapids_slink.hierarchy.plotting import COLORS, plot_heights
from rapids_slink.points.output import on_host

STEP = 25.0  # km: from any city of a belt one can go to any other in steps shorter than this
BELTS = 10
COLORED = 20  # a belt of at least this many cities has a colour


def cluster(device: str = "auto", progress: bool = False, memory_limit: Any = None) -> tuple[pd.DataFrame, Any]:
    """The cities, each with its ``belt``, and the fitted model."""
    cities = load_cities()
    model = rapids_slink.fit(
        np.radians(cities[["latitude", "longitude"]]),
        distance_threshold=STEP / EARTH_RADIUS,
        metric="haversine",
        device=device,
        progress=progress,
        memory_limit=memory_limit,
    )
    return cities.assign(belt=on_host(model.labels_)), model


def largest_belts(cities: pd.DataFrame) -> pd.DataFrame:
    """The most populous belts: the largest city, the number of cities, and their population."""
    ordered = cities.sort_values("population", ascending=False)
    belts = ordered.groupby("belt").agg(
        around=("name", "first"), country=("country", "first"), cities=("name", "size"), people=("population", "sum")
    )
    return belts.nlargest(BELTS, "people")


def figure(cities: pd.DataFrame, model: Any) -> Any:
    """The heights with the cut, and the world with the largest belts in colours, as a matplotlib Figure."""
    from matplotlib.figure import Figure

    both = Figure(figsize=(15, 5.2), layout="constrained")
    of_heights, of_world = both.subplots(1, 2, width_ratios=[1, 2.6])
    _draw_heights(model, of_heights)
    _draw_world(cities, of_world)
    return both


def _draw_heights(model: Any, ax: Any) -> None:
    linkage = on_host(model.linkage_)
    plot_heights(linkage.assign(height=linkage["height"] * EARTH_RADIUS), len(linkage) + 1, ax=ax)
    ax.axhline(STEP, color=COLORS[1], linestyle="--")
    ax.axvline(model.n_clusters_, color=COLORS[1], linestyle="--")
    clusters = f"{model.n_clusters_:,} clusters\nin steps below {STEP:g} km"
    ax.annotate(clusters, (model.n_clusters_, STEP), (-8, -10), textcoords="offset points", ha="right", va="top")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_ylabel("distance of the next merge (km)")
    ax.set_title("the heights of the merges, and the cut")


def _draw_world(cities: pd.DataFrame, ax: Any) -> None:
    sizes = cities.groupby("belt")["name"].transform("size")
    colors = np.where(sizes >= COLORED, np.take(COLORS, cities["belt"] % len(COLORS)), "#c8c8c8")
    ax.scatter(cities["longitude"], cities["latitude"], s=1.5, color=colors, linewidths=0)
    belts = [
        (f"{i} {belt.around}", cities.loc[cities["belt"] == belt.Index, ["longitude", "latitude"]])
        for i, belt in enumerate(largest_belts(cities).itertuples(), start=1)
    ]
    for i, (text, places) in enumerate(sorted(belts, key=lambda belt: belt[1]["longitude"].mean())):
        color, above = COLORS[i % len(COLORS)], i % 2 == 0  # neighbours in turn
        ax.scatter(*places.to_numpy().T, s=4, color=color, linewidths=0)
        ax.annotate(
            text,
            places.mean(),
            (0, 45 if above else -45),
            textcoords="offset points",
            ha="center",
            va="center",
            color=color,
            weight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1},  # over other places
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.8},
        )
    ax.set(xlim=(-170, 180), ylim=(-58, 80), xlabel="longitude", ylabel="latitude", aspect=1.25)
    ax.set_title(f"belts of {COLORED} cities and more; the {BELTS} most populous, each named for its largest city")


def report(cities: pd.DataFrame, model: Any) -> str:
    """The belts and what the run proved, as text."""
    belts = largest_belts(cities).reset_index(drop=True)
    belts.index += 1
    belts["people"] = (belts["people"] / 1e6).map("{:.1f} million".format)
    return (
        f"{len(cities):,} cities of the world (GeoNames, CC BY 4.0), clustered by great-circle distance: "
        f"{model.n_clusters_:,} clusters\nin which one can go from any city to any other in steps below {STEP:g} km. "
        f"The {BELTS} most populous:\n\n{belts.to_string()}\n\n"
        f"What was proven, and how long each stage took (seconds):\n{model.report_}"
    )
