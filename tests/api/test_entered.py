"""How much of the package a fit goes through, which is what its reader goes through."""

from repository import python

#: The most files, and functions with a name, that a fit of points on a CPU may enter, whose kernels are compiled.
FILES, FUNCTIONS = 37, 227

FIT = """
import os, sys, threading
import numpy as np, rapids_slink

X = np.random.default_rng(0).normal(size=(7000, 16)).astype(np.float32)
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


def test_a_fit_enters_few_files_and_functions():
    files, functions = map(int, python(FIT).split())
    assert 5 < files <= FILES
    assert 50 < functions <= FUNCTIONS
