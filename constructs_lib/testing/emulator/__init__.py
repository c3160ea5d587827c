"""The emulator process: ministack with our corrections, started as ``python -m constructs_lib.testing.emulator``.

Nothing in here runs in the process that uses `LocalAws`; the two meet over HTTP and a run folder.
"""
