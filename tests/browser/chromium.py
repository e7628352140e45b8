"""A headless Chromium, and a server on this machine for the page that it opens."""

import contextlib
import http.server
import threading
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

PAGES = Path(__file__).parent
BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless", "--enable-unsafe-webgpu", "--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
PATIENCE = 300  # seconds for all that a page computes: software drivers take long to compile
TYPES = {"html": "text/html", "js": "text/javascript", "json": "application/json"}


@contextlib.contextmanager
def served(files):
    """Serve files, texts by name, on 127.0.0.1; gives the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # as http.server calls it
            name = self.path.removeprefix("/")
            content = files.get(name, "").encode()
            self.send_response(200 if name in files else 404)
            self.send_header("Content-Type", TYPES.get(name.split(".")[-1], "text/plain"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def open_and_call(address, expression, folder):
    """Open a page, and give what a promise of it gives. Fails with the error of the page.

    folder  an empty one, for what the browser keeps
    """
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.get(address)
        driver.execute_script(
            f"{expression}.then((x) => window.told = [x, null],"
            " (e) => window.told = [null, `${e}`]);"
        )
        waiting = WebDriverWait(driver, PATIENCE, poll_frequency=0.2)
        result, error = waiting.until(lambda driver: driver.execute_script("return window.told"))
    finally:
        driver.quit()
    assert error is None, error
    return result
