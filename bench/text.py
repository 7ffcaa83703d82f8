"""Strings to link: receptors and words, made up letter by letter.

No list of words and no sequencing run is needed. A receptor's junction is the end of a V gene, letters drawn as
often as receptors have them, and the beginning of a J gene; both ends are trimmed. A word is two to five of 4,000
syllables. Neither knows real abundances: here few strings are near many others.
"""

import numpy as np

from bench.blocks import as_rows

SEED = 20
V_ENDS = ("CASSLG", "CASSPG", "CASSYS", "CASSQD", "CASSED", "CASRGD", "CAWSVG", "CASSFR", "CSARDR", "CASSDS")
J_STARTS = (
    "NTEAFF", "NYGYTF", "GNTIYF", "NEKLFF", "SNQPQHF", "YNSPLHF", "YNEQFF", "NTGELFF", "STDTQYF", "QETQYF", "GANVLTF",
    "SYEQYF",
)  # fmt: skip
LETTERS, WEIGHTS = "GRSTLPQADEVNYFWHKIMC", (25, 10, 12, 8, 7, 6, 6, 6, 5, 5, 4, 3, 3, 2, 2, 2, 2, 2, 1, 1)
SYLLABLES = 4000


def junctions(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (n,) strings of about 14 letters, and for each the number of its V and J gene together."""
    rng = np.random.default_rng(SEED)
    v, j = (rng.integers(0, len(genes), n) for genes in (V_ENDS, J_STARTS))
    kept, added, cut = rng.integers(4, 7, n), rng.integers(2, 9, n), rng.integers(0, 4, n)
    drawn = "".join(rng.choice(list(LETTERS), added.sum(), p=np.array(WEIGHTS) / sum(WEIGHTS)))
    end, strings = np.cumsum(added), np.empty(n, object)
    for i, (a, b) in enumerate(zip((end - added).tolist(), end.tolist(), strict=True)):
        strings[i] = V_ENDS[v[i]][: kept[i]] + drawn[a:b] + J_STARTS[j[i]][cut[i] :]
    return strings, v * len(J_STARTS) + j


@as_rows
def receptors(n: int) -> np.ndarray:
    """Draw a column of junctions, ordered by their genes."""
    strings, genes = junctions(n)
    return strings[np.argsort(genes, kind="stable")][:, None]


def genes(n: int) -> np.ndarray:
    """Return the groups of `receptors`, (n,), numbered from 0."""
    _, number = junctions(n)
    return np.unique(np.sort(number), return_inverse=True)[1]


@as_rows
def letters(n: int, shortest: int, longest: int, alphabet: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ") -> np.ndarray:
    """Draw a column of random letters, from `shortest` to `longest` in each string."""
    rng = np.random.default_rng(SEED)
    sizes = rng.integers(shortest, longest + 1, n)
    drawn, end = "".join(rng.choice(list(alphabet), sizes.sum())), np.cumsum(sizes)
    strings = np.empty(n, object)
    for i, (a, b) in enumerate(zip((end - sizes).tolist(), end.tolist(), strict=True)):
        strings[i] = drawn[a:b]
    return strings[:, None]


@as_rows
def words(n: int) -> np.ndarray:
    """Draw a column of words."""
    rng = np.random.default_rng(SEED)
    parts = ("bcdfghklmnprstvwz", "aeiou", "nrstlmdk", "eaos")
    drawn = [rng.choice(list(part), SYLLABLES) for part in parts]
    size = rng.integers(2, len(parts) + 1, SYLLABLES)
    syllables = ["".join(letters)[:m] for letters, m in zip(zip(*drawn, strict=True), size.tolist(), strict=True)]
    count = rng.integers(2, 6, n)
    chosen, end = rng.integers(0, SYLLABLES, count.sum()).tolist(), np.cumsum(count).tolist()
    strings = np.empty(n, object)
    for i, m in enumerate(count.tolist()):
        strings[i] = "".join(syllables[s] for s in chosen[end[i] - m : end[i]])
    return strings[:, None]
