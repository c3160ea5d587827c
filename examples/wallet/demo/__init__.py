"""The wallet's demo: four faces move money on local AWS while calls are lost and processes are killed."""
