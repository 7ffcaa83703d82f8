"""scikit-learn's conventions for an estimator, without importing scikit-learn.

The import would take more time than the rest of the first `fit` of a process. Methods that only scikit-learn calls
import it when they are called.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MethodType
from typing import Any, Self

from rapids_slink.report import did_you_mean

#: What parameters are called elsewhere, and here.
MEANINGS = {
    "affinity": "metric", "threshold": "distance_threshold", "eps": "distance_threshold", "k": "n_neighbors",
    "min_pts": "min_samples", "na_values": "missing_value",
}  # fmt: skip


class WithRows:
    """A method of models with ``prediction_data=True``; others are without it, as scikit-learn's checks ask."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method, self.__doc__ = method, method.__doc__

    def __get__(self, model: Any, kind: type) -> Any:
        if model is None:
            return self.method
        if not model.prediction_data:
            raise AttributeError(
                f"this {kind.__name__} keeps no rows for {self.method.__name__}: set prediction_data=True and fit"
            )
        return MethodType(self.method, model)


@cache
def _parameters(kind: Any) -> Mapping[str, inspect.Parameter]:
    """Those of a class; inspecting it takes time that a small fit would notice."""
    return inspect.signature(kind).parameters


class Estimator:
    """A clusterer. Its parameters are the arguments of ``__init__``, in attributes of the same names."""

    def __new__(cls, *values: Any, **parameters: Any) -> Self:
        """A model without attributes; raise TypeError for what is no parameter, unless a subclass takes any names."""
        kind: Any = cls  # which mypy does not take for hashable
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in _parameters(kind).values()):
            cls._check_names(parameters, TypeError)
        return super().__new__(cls)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name. `deep` has no effect, because none of them is an estimator."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        ValueError
            A name is not a parameter. Then none is set.
        """
        self._check_names(params, ValueError)
        self.__dict__.update(params)
        return self

    @classmethod
    def _check_names(cls, given: Iterable[str], error: type[Exception]) -> None:
        """Raise for the first name that is not a parameter's."""
        names = list(cls._defaults())
        for name in given:
            if name not in names:
                meant = did_you_mean(name, names, MEANINGS)
                raise error(f"{cls.__name__} has no parameter {name!r}, only {names}{meant}")

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        kind: Any = cls
        return {name: parameter.default for name, parameter in _parameters(kind).items()}

    def __repr__(self) -> str:
        chosen, defaults = {name: repr(value) for name, value in self.get_params().items()}, self._defaults()
        changed = ", ".join(f"{name}={text}" for name, text in chosen.items() if text != repr(defaults[name]))
        return f"{type(self).__name__}({changed})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags("clusterer", TargetTags(required=False), input_tags=InputTags())

    def _repr_html_(self) -> str:
        """scikit-learn's diagram of the parameters."""
        from sklearn.utils import estimator_html_repr

        return str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """The representations in Jupyter: text, and the page unless scikit-learn's ``display`` is "text"."""
        from sklearn import get_config

        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = self._repr_html_()
        return bundle
