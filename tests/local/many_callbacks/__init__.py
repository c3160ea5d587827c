"""Many sagas that wait at once, and everybody answers at once: deployed, driven and audited."""
