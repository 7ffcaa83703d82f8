"""How much of the package a fit goes through, which is what its reader goes through."""

import pytest
from repository import python

#: By the shape of points on a CPU, the most files, and functions with a name, that a fit may enter whose kernels are
#: compiled: few features, lists that prove all edges, and lists that do not.
MOST = {(20_000, 3): (29, 152), (7_000, 16): (33, 190), (20_000, 50): (35, 224)}

FIT = """
import os, sys, threading
import numpy as np, rapids_slink

X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
rapids_slink.fit(X, device="cpu").labels_
package, entered = os.path.dirname(rapids_slink.__file__), set()

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package):
        entered.add((code.co_filename, code.co_qualname))

threading.setprofile(note)
sys.setprofile(note)
rapids_slink.fit(X, device="cpu")
sys.setprofile(None)
named = [name for _, name in entered if "<" not in name.rpartition(".")[2]]
print(len({file for file, _ in entered}), len(named))
"""


@pytest.mark.parametrize("shape", MOST)
def test_a_fit_enters_few_files_and_functions(shape):
    files, functions = map(int, python(FIT.replace("SHAPE", str(shape))).split())
    most_files, most_functions = MOST[shape]
    assert 5 < files <= most_files
    assert 50 < functions <= most_functions
