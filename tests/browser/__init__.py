"""Pages in a real browser: `make browser`.

`chromium` starts Chromium and talks to it, `looks` has what every page must be, `served` serves pages on this
machine. The other modules are tests. Their names keep them out of `make test`, which needs no browser.
"""
