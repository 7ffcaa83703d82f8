"""Every launch fits into a block and a multiprocessor of each GPU from Turing on. None of them is needed."""

import re
from functools import cache

import pytest
from fake_gpu import BLOCK_THREADS, CAPABILITIES, MULTIPROCESSORS, REGISTERS, THREAD_REGISTERS, WITHOUT_OPTING_IN
from hard_cases import full
from launchers import LAUNCHERS, launches_of, small_batch
from nvrtc import PORTABLE, SOURCES, architectures, assert_compiles, compiled

from rapids_slink.runtime.cuda import cuda_source

RESERVED = 1024  # bytes of shared memory of a resident block, by CUDA
USAGE = re.compile(r"entry function '(\w+)'.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?", re.DOTALL)


@cache
def usage(code, architecture, *options):
    """Registers of a thread and bytes of static shared memory of a block, by kernel, as the assembler says."""
    options = options if any("-arch" in o for o in options) else (*options, f"-arch={architecture}")
    ptx, log = compiled(code, "--ptxas-options=-v", *options)
    assert ptx is not None, log
    return {name: (int(registers), int(shared or 0)) for name, registers, shared in USAGE.findall(log)}


def architecture_of(capability):
    """Of 8.7 that of 8.6, whose code it runs: of 98 kernels each has as many registers for either."""
    return f"sm_{86 if capability == 87 else capability}"


def resident_blocks(capability, kernel, threads, shared_memory):
    """How many blocks of a kernel, by its code, options and name, a multiprocessor holds."""
    _, room, most_threads, most_blocks = CAPABILITIES[capability]
    code, options, name = kernel
    registers, static = usage(code, architecture_of(capability), *options)[name]
    shared = static + shared_memory + RESERVED
    return min(most_threads // threads, most_blocks, REGISTERS // registers_of(threads, registers), room // shared)


def registers_of(threads, registers):
    """Of a block, as they are allocated: to four warps at a time, eight a thread."""
    return -(-registers // 8) * 8 * -(-threads // 128) * 128


def assert_fits(launch, capability):
    """Whether the GPU can start it."""
    opted_in = CAPABILITIES[capability][0]
    kernel = launch.code, launch.options, launch.kernel
    registers, static = usage(launch.code, architecture_of(capability), *launch.options)[launch.kernel]
    what = f"{launch.kernel} {launch.options}: {launch.threads} threads, {registers} registers, {static} + "
    what += f"{launch.shared_memory} bytes"
    assert launch.threads <= BLOCK_THREADS, what
    assert registers <= THREAD_REGISTERS, what
    assert registers_of(launch.threads, registers) <= REGISTERS, what
    if launch.limit:
        assert launch.shared_memory <= launch.limit <= opted_in - static, what
    else:
        assert launch.shared_memory <= WITHOUT_OPTING_IN - static, what
    resident = resident_blocks(capability, kernel, launch.threads, launch.shared_memory)
    assert resident >= 1, what
    if launch.resident or launch.kernel == "append_survivors":
        assert launch.grid[0] <= resident * MULTIPROCESSORS, what


@cache
def launches_on(launcher, capability):
    def resident(kernel, *sizes):
        return resident_blocks(capability, (kernel.code, kernel.options, kernel.name), *sizes)

    return launches_of(launcher, capability, resident)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("capability", list(map(full, CAPABILITIES)))
def test_launches_fit(launcher, capability):
    launches = launches_on(launcher, capability)
    assert launches or (launcher is small_batch and capability < 80)
    for launch in launches:
        assert_fits(launch, capability)


@pytest.mark.parametrize("architecture", list(map(full, PORTABLE)))
def test_other_sources_compile(architecture):
    """To machine code, without a launcher's options. Those of the launches above are compiled with theirs."""
    capability = int(architecture.removeprefix("sm_"))
    above = {launch.code for launcher in LAUNCHERS for launch in launches_on(launcher, capability)}
    for source in SOURCES:
        if architecture in architectures(source) and cuda_source(source) not in above:
            assert_compiles(source, architecture)
