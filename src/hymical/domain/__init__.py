"""Rules as frozen values and pure functions; standard library only."""
