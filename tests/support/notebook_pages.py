"""A notebook in JupyterLab, driven in a browser."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser():
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def write_notebook(folder, *cells):
    """Write ``explore.ipynb`` with these cells."""
    import nbformat

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "explore.ipynb")


@contextmanager
def jupyterlab(folder, theme):
    """Run a JupyterLab in a folder, and yield its address."""
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": theme}))
    (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--port={port}", "--ip=127.0.0.1", "--no-browser", "--allow-root", "--IdentityProvider.token="]
    environment = {
        **os.environ, "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"), "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"), "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", *options]
    with open(folder / "log", "w") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as lab:
        try:
            for _ in range(300):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            lab.terminate()


@contextmanager
def opened(folder, address):
    """Open the page of ``explore.ipynb`` in a browser, and yield it."""
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=options)
        page = chromium.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(30_000)
        page.said = []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
        page.goto(f"{address}/lab/tree/explore.ipynb?reset")
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        page.get_by_text(re.compile(r"\| Idle$")).wait_for()  # the kernel's
        yield page
        chromium.close()


def run_cell(page, number):
    page.locator(".jp-Notebook .jp-CodeCell .jp-InputArea-editor").nth(number).click()
    page.keyboard.press("Shift+Enter")
