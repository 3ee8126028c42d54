"""A real browser for the tests of pages and for screenshots: Debian's chromium, without a network, driven by
selenium.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--hide-scrollbars", "--disable-dev-shm-usage", "--proxy-server=http://127.0.0.1:9",
    "--disable-features=OptimizationHints,Translate,MediaRouter",
]  # fmt: skip


def missing() -> str:
    """Why there is no browser here; empty where there is one."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        return "needs chromium and chromedriver"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "needs selenium"
    return ""


class Browser:
    """One browser window, and what it did."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path | str, hash_: str = "", wait: bool = True) -> None:
        """Load a page of ours anew and wait until it has painted."""
        self.driver.get("about:blank")
        self.driver.get((page.resolve().as_uri() if isinstance(page, Path) else page) + hash_)
        if wait:
            self.until("document.documentElement.dataset.ready")

    def run(self, script: str, *args: Any) -> Any:
        """The value of an expression in the page."""
        return self.driver.execute_script(f"return ({script});", *args)

    def until(self, condition: str, seconds: float = 60) -> Any:
        """Wait until an expression in the page is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.run(condition))

    def press(self, *keys: str) -> None:
        """Press keys wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def errors(self) -> list[str]:
        """What the console complained of since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("about:", "data:"))]

    def scheme(self, name: str) -> None:
        """Prefer light or dark, as a system setting would."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Set the page's own size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block and leaves nothing behind."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with TemporaryDirectory(prefix="smopd-browser-") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
        driver.set_page_load_timeout(120)
        driver.set_script_timeout(120)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
